"""docs/rewards.md says what the docstrings say, and its code runs."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from hf_vlm_rl import rewards
from tests.documents import material, pages
from tests.rewards.judging.stand_in import StandInJudge
from tests.vllm.stand_in import listening

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def script():
    return pages.script("make_rewards")


def test_the_table_is_what_the_docstrings_give(script):
    assert script.PAGE.read_text() == script.page(), "run `make docs`"


def test_every_reward_is_in_the_table(script):
    table = script.table()
    names = [name for name in rewards.__all__ if name.endswith(("Reward", "_reward"))]
    missing = {name for name in names if f"`{name}`" not in table}
    assert missing == {"AnswerReward", "BoxReward", "ComposedReward", "Reward", "RowReward"}
    assert "`compose(...)`" in table


def test_the_code_of_the_page_runs_and_gives_what_it_says(policy_for, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    material.photo_file()
    material.model_at("reward-model", "qwen3_vl")
    known, printed = {"policy": policy_for("qwen3_vl")}, io.StringIO()
    judge = StandInJudge(lambda document, images: {"reason": "", "score": 9})
    with contextlib.redirect_stdout(printed), listening(judge) as url:
        for block in re.findall(r"```python\n(.*?)```", script.PAGE.read_text(), flags=re.DOTALL):
            exec(block.replace("http://localhost:8001", url), known)
    assert known["judge"].usage.requests == len(judge.asked) == 1
    assert known["brand_reward"](["<answer>coke!</answer>"], answer=["Coca-Cola"]) == [1.0]
    assert known["boxes"].to_text([64, 48, 320, 240], (640, 480), "cat").startswith('{"bbox_2d": [100, ')
    assert known["YearReward"]()(["1984"], year=[1986]) == [0.8]
    assert "Say the form in the prompt, warm up with SFT" in printed.getvalue()
