"""Run by `accelerate launch` with `accelerate_configs/fsdp2.yaml` on two ranks of a CPU: CHECKPOINT OUT.

accelerate becomes FSDP on accelerators only. Here its state is told what it concludes on a GPU; everything
else is accelerate's own: the plugin from the launcher's environment, wrapping, optimizer, saving.
"""

import json
import sys
from pathlib import Path

from accelerate import Accelerator, DistributedType, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin

from tests.trainers.distributed.training import main, preferred, sampled, taught

# DPO here takes steps without a state, from which torch 2.15 cannot resume sharded.
FSDP = {"runs": [preferred, sampled, taught], "resumed": [sampled]}


def start() -> None:
    state = Accelerator(cpu=True).state
    state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
    state.fsdp_plugin = FullyShardedDataParallelPlugin()


if __name__ == "__main__":
    checkpoint, out = sys.argv[1:]
    start()
    # A file, because a trainer's arguments consume an object.
    config = Path(out) / f"accelerator-{PartialState().process_index}.json"
    config.write_text(json.dumps({"use_configured_state": True}))
    main(FSDP, checkpoint, out, accelerator_config=str(config))
