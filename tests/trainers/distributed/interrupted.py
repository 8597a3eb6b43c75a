"""Run by torchrun on two ranks: runs that something ends, and how they go on. MODE CHECKPOINT OUT.

"ended" trains once through, and then once until its launcher is sent the SIGTERM that SLURM sends before the
time of a job is over. "lost" goes on from there, and then trains until a rank is gone. torchrun starts both
ranks anew, and they go on from the last checkpoint.
"""

import faulthandler
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers.trainer_jit_checkpoint import JITCheckpointCallback
from transformers.trainer_utils import get_last_checkpoint

from tests.trainers.distributed.launch import leave
from tests.trainers.distributed.training import LIMIT, SAVING, measure, online, rollout

LAST = 2  # step before a run is ended


def until_ended(prompts: list, trainer: Any) -> dict[str, list]:
    """Completions; before those of the third step, torchrun is ended, and the ranks know it."""
    if trainer.state.global_step == LAST:
        (jit,) = (c for c in trainer.callback_handler.callbacks if isinstance(c, JITCheckpointCallback))
        distributed.barrier()
        if distributed.get_rank() == 0:
            os.kill(os.getppid(), signal.SIGTERM)
        # transformers looks at each rank's own clock, three seconds after the signal.
        while not jit.jit_manager.is_checkpoint_requested:
            time.sleep(0.05)
        distributed.barrier()
    return rollout(prompts, trainer)


def until_lost(prompts: list, trainer: Any) -> dict[str, list]:
    """Completions; before those of the fourth step, one rank leaves, the first time."""
    if trainer.state.global_step == LAST + 1 and distributed.get_rank() == 1 and not restarted():
        os._exit(1)
    return rollout(prompts, trainer)


def restarted() -> bool:
    return os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"


def trained(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO with LoRA and Adam; what a row samples depends on nothing that a checkpoint lacks."""
    steps = {"rollout": rollout, "num_generations": 4, "max_steps": 4}
    return online(policy, out, **steps | options, peft=policy.lora_config(r=4))


def ended(policy: Any, out: Path) -> dict:
    return trained(policy, out, rollout=until_ended, enable_jit_checkpoint=True)


def went_on(policy: Any, out: Path) -> dict:
    return trained(policy, out, resume=out.parent / "ended" / f"checkpoint-{LAST}")


def lost(policy: Any, out: Path) -> dict:
    last = get_last_checkpoint(out) if restarted() else None
    return trained(policy, out, rollout=until_lost, resume=last, **SAVING)


def main(mode: str, checkpoint: str, out: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
    kinds = [trained, ended] if mode == "ended" else [lost] if restarted() else [went_on, lost]
    for kind in kinds:
        found = measure(checkpoint, Path(out), [kind], [])
        torch.save(found[kind.__name__], f"{out}/{kind.__name__}-{distributed.get_rank()}.pt")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
