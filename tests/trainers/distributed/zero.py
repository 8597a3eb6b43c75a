"""Run by `accelerate launch` with a DeepSpeed configuration on two ranks of a CPU: CHECKPOINT OUT."""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"  # read when DeepSpeed is imported

from tests.trainers.distributed.training import main, preferred, sampled, taught, tower

ZERO = {"runs": [preferred, sampled, taught, tower], "resumed": [sampled]}


if __name__ == "__main__":
    # accelerate does not start DeepSpeed where it is told of a CPU; there is no other device here.
    main(ZERO, *sys.argv[1:], use_cpu=False, ddp_backend="gloo")
