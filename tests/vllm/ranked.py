"""Run by torchrun on two ranks: what each is told of the main process's work goes to OUT/rank-RANK."""

import re
import sys
from pathlib import Path

from accelerate import Accelerator

from hf_vlm_rl._ranks import from_first
from hf_vlm_rl.vllm.server import TASK, reset_server
from tests.trainers.distributed.launch import leave
from tests.vllm.stand_in import StandIn, client_of, listening


def main(out: str) -> None:
    accelerator = Accelerator(cpu=True)
    stand_in, told = StandIn(None), []  # without an engine it answers 500
    with listening(stand_in) as url:
        engine = type("Engine", (), {"vllm_client": client_of(url)})
        for work in (lambda: [3, accelerator.process_index], lambda: reset_server(engine)):
            try:
                told.append(str(from_first(work, TASK)))
            except Exception as error:
                told.append(re.sub(r"http://[0-9.:]+", "URL", f"{type(error).__name__}: {error}"))
    Path(out, f"rank-{accelerator.process_index}").write_text("\n".join(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave()
