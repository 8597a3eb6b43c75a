"""Start a script on several ranks."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import distributed

# What `accelerate launch` takes from the command line instead of its configuration: processes on a CPU.
OVERRIDES = ("--mixed_precision", "no", "--num_processes")
# torchrun's options, read also by `accelerate launch`. The rendezvous binds its port and keeps it: one that
# is looked up first and passed on may be taken by another test in between.
RENDEZVOUS = {
    "PET_STANDALONE": "1",
    "PET_LOCAL_ADDR": "127.0.0.1",
    # By default, ranks that torchrun has started anew write their addresses into the store of those before
    # them. One that is faster than its peer reads the address of an ended process: "Connection refused".
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
SECONDS_TO_END = 30


def on_two_ranks(module: str, *arguments, config: Path | None = None, timeout: int = 300) -> None:
    """Run a module on two processes of this machine; arguments as in `on_ranks`."""
    on_ranks(2, module, *arguments, config=config, timeout=timeout)


def on_ranks(
    number: int,
    module: str,
    *arguments,
    config: Path | None = None,
    options: Sequence[str] = (),
    status: int = 0,
    timeout: int = 300,
) -> None:
    """Run a module on processes of this machine.

    Args:
        number: Of the processes.
        module: Its name.
        *arguments: Of its command line.
        config: For `accelerate launch --config_file`; without it, torchrun starts the module.
        options: Further ones of the launcher.
        status: With which it has to end.
        timeout: Seconds after which a rank counts as one that waits for ever.
    """
    launch = ["torch.distributed.run", "--nproc_per_node", str(number)]
    if config is not None:
        launch = ["accelerate.commands.launch", "--config_file", str(config), *OVERRIDES, str(number)]
    _wait([_launcher([*launch, *options], module, *arguments, environment=RENDEZVOUS)], timeout, status)


def on_two_nodes(module: str, *arguments, config: Path, nodes: Sequence[Path], timeout: int = 300) -> None:
    """Run a module on two machines of one process each, that is, by two launchers that meet on loopback.

    Args:
        module: Its name.
        *arguments: Of its command line.
        config: For `accelerate launch --config_file`.
        nodes: A folder for each: its working directory, below which its store and its output lie.
        timeout: Seconds after which a rank counts as one that waits for ever.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = ["--num_machines", "2", "--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    launch = ["accelerate.commands.launch", "--config_file", str(config), *OVERRIDES, "2", *meeting]
    launchers = []
    for rank, folder in enumerate(nodes):
        folder.mkdir(parents=True)
        launchers.append(
            _launcher(
                [*launch, "--machine_rank", str(rank)],
                module,
                *arguments,
                environment={"HF_VLM_RL_CACHE": "images"},
                folder=folder,
            )
        )
    _wait(launchers, timeout)


def _launcher(
    launch: Sequence[str], module: str, *arguments, environment: dict[str, str], folder: Path | None = None
) -> subprocess.Popen:
    """A started launcher; `launch` is its module and its options."""
    path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-m", *launch, "-m", module, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | environment | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )


def _wait(launchers: Sequence[subprocess.Popen], timeout: int, status: int = 0) -> None:
    """Wait until all end with a status; what they wrote is told if one does not."""
    with ThreadPoolExecutor(len(launchers)) as pool:  # one whose pipe is full would wait for its reader
        ends = [pool.submit(launcher.communicate, timeout=timeout) for launcher in launchers]
    if any(end.exception() for end in ends):
        errors = [_end(launcher) for launcher in launchers]
        raise AssertionError("\n".join([f"No end after {timeout} seconds.", *(e[-8000:] for e in errors)]))
    errors = "\n".join(end.result()[1][-8000:] for end in ends)
    assert [launcher.returncode for launcher in launchers] == [status] * len(launchers), errors


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
