"""Start a script on several ranks."""

import os
import subprocess
import sys
from pathlib import Path

from torch import distributed

# What `accelerate launch` takes from the command line instead of its configuration: processes on a CPU.
OVERRIDES = ("--mixed_precision", "no", "--num_processes")
# torchrun's options, read also by `accelerate launch`. The rendezvous binds its port and keeps it: one that
# is looked up first and passed on may be taken by another test in between.
RENDEZVOUS = {"PET_STANDALONE": "1", "PET_LOCAL_ADDR": "127.0.0.1"}
SECONDS_TO_END = 30


def on_two_ranks(module: str, *arguments, config: Path | None = None, timeout: int = 300) -> None:
    """Run a module on two processes of this machine; arguments as in `on_ranks`."""
    on_ranks(2, module, *arguments, config=config, timeout=timeout)


def on_ranks(number: int, module: str, *arguments, config: Path | None = None, timeout: int = 300) -> None:
    """Run a module on processes of this machine; all must end with status 0.

    Args:
        number: Of the processes.
        module: Its name.
        *arguments: Of its command line.
        config: For `accelerate launch --config_file`; without it, torchrun starts the module.
        timeout: Seconds after which a rank counts as one that waits for ever.
    """
    launch = ["torch.distributed.run", "--nproc_per_node", str(number)]
    if config is not None:
        launch = ["accelerate.commands.launch", "--config_file", str(config), *OVERRIDES, str(number)]
    path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    launcher = subprocess.Popen(
        [sys.executable, "-m", *launch, "-m", module, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | RENDEZVOUS | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    try:
        errors = launcher.communicate(timeout=timeout)[1]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"No end after {timeout} seconds.\n{_end(launcher)[-8000:]}") from None
    assert launcher.returncode == 0, errors[-8000:]


def _end(launcher: subprocess.Popen) -> str:
    """End a launcher that ends its ranks, which are in sessions of their own; return what they wrote."""
    launcher.terminate()
    try:
        return launcher.communicate(timeout=SECONDS_TO_END)[1]
    except subprocess.TimeoutExpired:
        launcher.kill()
        return ""


def leave() -> None:
    """End a rank whose work is done.

    Python's own end is not waited for: one rank in some hundred was aborted there ("terminate called without
    an active exception"), presumably by a thread of gloo that asks for the interpreter while it goes.
    """
    distributed.barrier()  # gloo aborts a rank whose peer leaves first
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
