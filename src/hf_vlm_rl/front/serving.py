"""Runs a front in a thread of this process, for the length of a block."""

import asyncio
import importlib.util
import ipaddress
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from .._install import pip_install
from ..processing.ids.tokenizer import IdsTokenizer

TOKEN = "HF_VLM_RL_FRONT_TOKEN"


@contextmanager
def serving(
    tokenizer: IdsTokenizer,
    servers: Sequence[str],
    compare: Any = None,
    compare_every: int = 20,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> Iterator[str]:
    """Let a front answer trainers until the block ends; gives its address.

    `compare` is that of `Front`. With port 0, the front listens at any port that is free. `token` is what
    requests must bring; TRL's clients bring it in an address: `http://any:TOKEN@host:port`.

    Raises:
        ImportError: If aiohttp is not installed.
        ValueError: If there is no address of a server, or other machines could ask without a token.
    """
    if importlib.util.find_spec("aiohttp") is None:
        raise ImportError(f"A front needs aiohttp: {pip_install('vllm')}")
    if compare_every < 1:
        raise ValueError(f"Got {compare_every=}. Expected a number of requests, 1 or more.")
    _check_servers(servers)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"Got host={host!r}: {error}. Expected an address of this machine.") from error
    if not ipaddress.ip_address(address[0]).is_loopback and not token:
        raise ValueError(
            f"Got host={host!r}, which other machines reach, and no token. Whoever asks a front commands the "
            f"vLLM servers behind it. Expected a token in the environment variable {TOKEN}, or "
            "host='127.0.0.1'."
        )
    from .app import Front
    from .servers import Servers

    listening = socket.create_server(address[:2], family=family)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="vllm-front", daemon=True)
    thread.start()

    async def start() -> Any:
        from aiohttp import web

        front = Front(tokenizer, Servers(tuple(servers)), token, compare, compare_every)
        runner = web.AppRunner(front.application(), access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.SockSite(runner, listening, shutdown_timeout=1.0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _check_servers(servers: Sequence[str]) -> None:
    for url in servers:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"Got the server {url!r}. Expected an address such as 'http://gpu:8000'.")
    if len({url.rstrip("/") for url in servers}) < len(servers):
        raise ValueError(f"Got the servers {list(servers)}, one of them twice. Expected each once.")
    if not servers:
        raise ValueError("Got no server. Expected the address of a `vllm serve`, such as 'http://gpu:8000'.")
