"""The README's script runs as it stands, on a tiny model in place of a large one."""

import re
from pathlib import Path

import pytest
from trl import GRPOConfig

from hf_vlm_rl import VLMPolicy
from tests.images import photo

pytestmark = pytest.mark.trl

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
SHORT = (
    "GRPOConfig(output_dir=out, max_steps=1, per_device_train_batch_size=4, num_generations=2, "
    'max_completion_length=4, report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True)'
)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "internvl"])
def test_the_grpo_script_trains(family, checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "coffee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            photo(name, (112, 112)).save(f"photos/{name}/{number}.png")
    (script,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = script.replace('"Qwen/Qwen2.5-VL-3B-Instruct"', repr(str(checkpoint(family))))
    script = script.replace('GRPOConfig(output_dir="out")', SHORT)
    names = {"out": str(tmp_path / "out")}
    exec(compile(script, "README.md", "exec"), names)
    assert isinstance(names["policy"], VLMPolicy)
    assert names["trainer"].state.global_step == 1
    assert type(names["trainer"].args) is GRPOConfig
