"""Run by two `accelerate launch` with `multi_node_zero3.yaml`, each a machine of one CPU: CHECKPOINT OUT.

A machine's store lies below its working directory. OUT is for both: the file `latest`, by which DeepSpeed
finds a checkpoint, is written by the first process alone.
"""

import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"  # read when DeepSpeed is imported

from hf_vlm_rl import ImageStore
from tests.trainers.distributed.training import main, sampled, taught

ZERO = {"runs": [sampled, taught], "resumed": [sampled]}


if __name__ == "__main__":
    if not ImageStore().directory.resolve().is_relative_to(Path.cwd()):
        raise SystemExit("The machines share a store.")
    # accelerate does not start DeepSpeed where it is told of a CPU; there is no other device here.
    main(ZERO, *sys.argv[1:], use_cpu=False, ddp_backend="gloo")
