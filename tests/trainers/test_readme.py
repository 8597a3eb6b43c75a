"""The README's scripts run as they stand, on a tiny model in place of a large one."""

import re
from pathlib import Path

import pytest
from datasets import Dataset
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
def test_the_grpo_script_trains(family, checkpoint, tmp_path):
    (script,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "reward_funcs" in block
    )
    script = script.replace('"Qwen/Qwen2.5-VL-3B-Instruct"', repr(str(checkpoint(family))))
    script = script.replace('GRPOConfig(output_dir="out")', SHORT)
    row = {
        "prompt": [{"role": "user", "content": "What is it?"}],
        "images": [photo("cat", (112, 112))],
        "answer": "a",
    }
    names = {"dataset": Dataset.from_list([row] * 4), "out": str(tmp_path)}
    exec(compile(script, "README.md", "exec"), names)
    assert isinstance(names["policy"], VLMPolicy)
    assert names["trainer"].state.global_step == 1
    assert type(names["trainer"].args) is GRPOConfig
