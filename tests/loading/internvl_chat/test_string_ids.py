"""A path in the original format is enough for TRL, once `register()` was called.

Registration is for a whole process, so each test starts one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset

from .golden import INTERNLM2, directory, photo

pytestmark = pytest.mark.trl

SCRIPT = """
import sys
from trl import GRPOConfig, GRPOTrainer
from hf_vlm_rl import VLMPolicy, VLMTokenizer, register
from tests.loading.internvl_chat.test_steps import ROWS
from tests.trainers.runs import PLAIN, ROLLOUT, by_ids, logs
from datasets import Dataset

register()
source, out = sys.argv[1:]
options = PLAIN | ROLLOUT | {"max_steps": 1, "beta": 0.1, "output_dir": out, "learning_rate": 1e-3}
trainer = GRPOTrainer(
    model=source, reward_funcs=by_ids, args=GRPOConfig(**options), train_dataset=Dataset.from_list(ROWS)
)
assert isinstance(trainer.model, VLMPolicy), type(trainer.model)
assert isinstance(trainer.processing_class, VLMTokenizer), type(trainer.processing_class)
assert isinstance(trainer.ref_model, VLMPolicy), type(trainer.ref_model)
assert trainer.model.config._name_or_path == source
assert trainer.processing_class.eos_token == "<|im_end|>"
trainer.train()
((kl, norm),) = logs(trainer, "kl", "grad_norm")
assert abs(kl) < 1e-5 and norm > 0, (kl, norm)
print("TRAINED")
"""


def run(arguments: list[str], folder: Path) -> str:
    environment = os.environ | {"HF_HOME": str(folder / "hf"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_grpo_loads_policy_processor_and_reference_from_a_path(tmp_path):
    assert "TRAINED" in run(["-c", SCRIPT, str(directory(INTERNLM2)), str(tmp_path / "out")], tmp_path)


@pytest.fixture
def image_rows(tmp_path):
    """A data set on disk, as `load_dataset` takes it."""
    names = ("rocket_portrait.png", "coffee_wide.png")
    rows = [
        {"prompt": [{"role": "user", "content": "What is it?"}], "images": [photo(name)]} for name in names
    ]
    folder = tmp_path / "data"
    folder.mkdir()
    Dataset.from_list(rows).to_parquet(folder / "train.parquet")
    return folder


@pytest.mark.slow
def test_the_command_trains(image_rows, tmp_path):
    out = tmp_path / "out"
    command = ["-m", "hf_vlm_rl.cli", "trl", "grpo", "--model_name_or_path", str(directory(INTERNLM2))]
    options = {
        "dataset_name": image_rows,
        "reward_funcs": "tests.trainers.runs.by_ids",
        "output_dir": out,
        "dtype": "float32",
        "use_peft": "true",
        "lora_target_modules": "all-linear",
        "lora_r": 4,
        "learning_rate": 1e-2,
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "max_completion_length": 4,
        "gradient_checkpointing": "false",
        "use_cpu": "true",
        "bf16": "false",
        "report_to": "none",
        "save_strategy": "no",
    }
    run([*command, *(str(part) for key, value in options.items() for part in (f"--{key}", value))], tmp_path)
    assert (out / "adapter_model.safetensors").is_file()
    assert str(directory(INTERNLM2)) in (out / "adapter_config.json").read_text()


@pytest.mark.slow
def test_an_unknown_script_is_an_error():
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "trl", "grpoo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Got 'grpoo'. The installed TRL has " in done.stderr
    assert {"dpo", "grpo", "sft"} <= set(done.stderr.replace(".", ",").replace(" ", "").split(","))
