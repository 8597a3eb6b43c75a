"""One step of GRPO with a real vLLM on every class, each in a process of its own, as lines of JSON.

.lanes/vllm/bin/python -m tests.vllm.engine.every_class docs/vllm_classes.jsonl [CLASS ...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hf_vlm_rl.families.tiny import auto_class
from tests.tiny import EVERY, recipe

TIMEOUT = 300  # seconds for a class
MARK = "row: "


def architecture(family: str) -> str:
    """The name by which vLLM looks a class up."""
    config = recipe(family).config
    return auto_class(config)._model_mapping[type(config)].__name__


def run(family: str) -> dict[str, Any]:
    """Three steps on rows with one image, two and none."""
    from trl.generation import vllm_generation
    from vllm import LLM

    from hf_vlm_rl import AutoVLMPolicy
    from hf_vlm_rl.vllm import match_weight_names, vllm_rollout
    from tests.trainers.runs import flat, grpo, mixture
    from tests.vllm.engine import cpu
    from tests.vllm.engine.models import write_checkpoint

    os.environ |= {"MASTER_PORT": str(cpu.free_port()), "MASTER_ADDR": "127.0.0.1"}
    vllm_generation.LLM = lambda **settings: LLM(**settings | {"enforce_eager": True, "dtype": "float32"})
    with tempfile.TemporaryDirectory() as folder:
        policy = AutoVLMPolicy.from_pretrained(
            write_checkpoint(family, Path(folder) / family), dtype="float32"
        )
        trainer = grpo(
            policy,
            mixture(family),
            Path(folder) / "out",
            use_vllm=True,
            vllm_mode="colocate",
            vllm_max_model_length=2048,
            vllm_gpu_memory_utilization=0.5,
            per_device_train_batch_size=6,
            steps_per_generation=1,
            max_completion_length=8,
            rollout=vllm_rollout,
            peft=policy.lora_config(r=4),
        )
        match_weight_names(trainer)
        trainer.train()
        return {
            "difference": flat(trainer, "sampling/sampling_logp_difference/max"),
            "ratio": flat(trainer, "sampling/importance_sampling_ratio/mean"),
        }


def in_a_process(family: str) -> dict[str, Any]:
    """A row of the table: figures, or the last error."""
    command = [sys.executable, "-m", __spec__.name, "--one", family]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {TIMEOUT} s"}
    for line in ended.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    said = re.findall(r"^(?:\[rank0\]: )?([\w.]*(?:Error|Exception): .*)", ended.stderr, flags=re.MULTILINE)
    return {"failed": said[-1][:400] if said else f"exit {ended.returncode}"}


def main(path: str, *names: str) -> None:
    """Append a row for each class that the file does not have yet."""
    from vllm import ModelRegistry

    known = set(ModelRegistry.get_supported_archs())
    file = Path(path)
    done = {json.loads(line)["family"] for line in file.read_text().splitlines()} if file.exists() else set()
    for family in names or EVERY:
        if family in done:
            continue
        name = architecture(family)
        row = {"family": family, "architecture": name}
        row |= in_a_process(family) if name in known else {"failed": "unknown to vLLM"}
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(MARK + json.dumps(run(sys.argv[2])), flush=True)
    else:
        main(*sys.argv[1:])
