"""What vLLM needs to run tiny models on a CPU in float32, in this process or as a server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import requests

# Before vLLM reads them.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_MODELSCOPE": "0",
}
START = Path(__file__).parent / "start" / "serve.py"
# As docs/vllm.md starts a server, and what a CPU needs.
OPTIONS = (
    *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--enable-scale-out"),
    *("--max-model-len", "1024", "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16"),
    *("--host", "127.0.0.1"),
)
SECONDS = 240


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def serving(directory: Path, log: Path, port: int | None = None, *options: str) -> Iterator[str]:
    """Run `vllm serve` for the length of a block; gives its address."""
    port = port or free_port()
    command = [sys.executable, str(START), "serve", str(directory), "--port", str(port), *OPTIONS, *options]
    development = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    environment = {**os.environ, **development, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with log.open("ab") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    url, began = f"http://127.0.0.1:{port}", time.monotonic()
    try:
        while not _answers(url):
            if server.poll() is not None or time.monotonic() - began > SECONDS:
                raise RuntimeError(f"vllm serve did not start: {log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.5)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).status_code == 200
    except requests.RequestException:
        return False
