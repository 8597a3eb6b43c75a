"""The code of docs/evaluation.md runs as it stands."""

import re
from pathlib import Path

import pytest
from peft import get_peft_model

from tests.evaluation.rows import user
from tests.images import photo
from tests.trainers.runs import said, sft

pytestmark = [pytest.mark.trl, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def known(policy_for, tmp_path, monkeypatch):
    """What the scripts take for granted, and an adapter under the name they load."""
    monkeypatch.chdir(tmp_path)
    policy = policy_for("internvl")
    model = get_peft_model(policy_for("internvl"), policy.lora_config(r=4, init_lora_weights=False))
    model.save_pretrained("user/adapter")
    rows = [
        {
            "prompt": user("What is it?"),
            "image": photo(name, (112, 112)),
            "answer": name,
            "box": [1, 2, 30, 40],
        }
        for name in ("cat", "coffee", "rocket")
    ]
    completed = [row | {"completion": said(row["answer"])} for row in rows]
    return {"policy": policy, "held_out": rows, "trainer": sft(policy, completed, tmp_path / "out")}


def blocks(text):
    found = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return [re.sub(r"max_new_tokens=\d+", "max_new_tokens=4", block) for block in found]


def test_the_code_of_the_page_runs(known, capsys):
    for block in blocks((ROOT / "docs" / "evaluation.md").read_text()):
        exec(compile(block, "evaluation.md", "exec"), known)
    shown = capsys.readouterr().out
    assert "| iou_reward | 3 | " in shown
    assert shown.count("| better / worse |") == 2
    (evaluation,) = known["card"].evaluations
    assert (evaluation.metric, evaluation.n) == ("accuracy", 3)
    assert {path.name for path in Path().glob("*.*")} == {"before.json", "before.html", "comparison.html"}
