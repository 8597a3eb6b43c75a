"""What TRL loads after `hf_vlm_rl.register()`, which is for a whole process: run as a program.

`python -m tests.trainers.registered DIRECTORY FAMILY...` prints one line of JSON per family, for
checkpoints in DIRECTORY/FAMILY. `test_full_weights` starts it and reads them.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy, VLMPolicy, register
from tests.trainers.runs import grpo, logs, mixture, parameters, split_by_change


def run(family: str, checkpoint: Path) -> dict:
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    trainer = grpo(policy, mixture(family), tempfile.mkdtemp(), beta=0.1, learning_rate=1e-3)
    before = parameters(policy)
    reference_before = parameters(trainer.ref_model)
    trainer.train()
    stayed, frozen_moved = split_by_change(policy, before)
    reference = parameters(trainer.ref_model)
    loaded = AutoModelForImageTextToText.from_pretrained(checkpoint)
    processor = AutoProcessor.from_pretrained(checkpoint)
    by_id = grpo(
        str(checkpoint), mixture(family), tempfile.mkdtemp(), processing_class=policy.processing_class
    )
    return {
        "family": family,
        "reference_is_policy": isinstance(trainer.ref_model, VLMPolicy),
        "reference_moved": [name for name in reference if not reference[name].equal(reference_before[name])],
        "reference_began_apart": [name for name in before if not torch.equal(before[name], reference[name])],
        "stayed": sorted(stayed),
        "frozen_moved": sorted(frozen_moved),
        "steps": logs(trainer, "kl", "loss"),
        "id_gives_policy": isinstance(by_id.model, VLMPolicy),
        "auto_model_gives_policy": isinstance(loaded, VLMPolicy),
        "auto_model": f"{type(loaded).__module__}.{type(loaded).__name__}",
        "auto_processor": f"{type(processor).__module__}.{type(processor).__name__}",
        "auto_processor_mro": type(processor).__mro__[1].__name__,
        "saved_architectures": saved_architectures(policy),
    }


def saved_architectures(policy) -> list[str]:
    directory = Path(tempfile.mkdtemp())
    policy.save_pretrained(directory)
    return json.loads((directory / "config.json").read_text())["architectures"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    register()
    for name in sys.argv[2:]:
        print("RESULT " + json.dumps(run(name, Path(sys.argv[1]) / name)), flush=True)
