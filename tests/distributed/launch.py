"""Start a script on two ranks."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from torch import distributed


def on_two_ranks(module: str, *arguments, timeout: int = 120) -> None:
    """Run a module with torchrun; a rank that waits for ever is a failure after `timeout` seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(port)]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *launch, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-4000:]


def leave() -> None:
    """End a rank whose work is done.

    Python's own end is not waited for: one rank in some hundred was aborted there ("terminate called without
    an active exception"), presumably by a thread of gloo that asks for the interpreter while it goes.
    """
    distributed.barrier()  # gloo aborts a rank whose peer leaves first
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
