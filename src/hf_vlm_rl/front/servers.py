"""The vLLM servers behind a front: the least busy one answers, and all get the same weights.

A server that cannot be reached drops out, and is asked again a while later. If it was restarted since it got
weights, it has the checkpoint's and stays out until it gets weights again: vLLM tells by the `instance_id` of
`/server_info`, which is another one in each process.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

logger = logging.getLogger(__name__)

# Seconds until a lost server is asked again while others answer.
PAUSE = 2.0
# Requests to one server at a time. It queues requests itself.
CONNECTIONS = 256


class ServersLostError(ConnectionError):
    """No vLLM server can be reached, or none that has the last weights."""


@dataclass
class Server:
    """One vLLM server.

    Attributes:
        url: Its address.
        running: Requests that it has not answered.
        lost_at: When it could not be reached (`time.monotonic`); None while it can.
        outdated: Whether it may lack weights that the others got.
        instance: The process that got the last weights; None if none were sent, or it does not say.
    """

    url: str
    running: int = 0
    lost_at: float | None = None
    outdated: bool = False
    instance: str | None = None


@dataclass(frozen=True)
class Answer:
    """What the server at `url` answered: its status, the body's bytes and their type."""

    url: str
    status: int
    content: bytes
    kind: str

    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


class Servers:
    """Asks one or several vLLM servers; inside one event loop.

    They get $VLLM_API_KEY, vLLM's `--api-key`, if it is set.

    Args:
        urls: Their addresses, such as `http://gpu:8000`.
    """

    def __init__(self, urls: tuple[str, ...]):
        self.all = [Server(url.rstrip("/")) for url in urls]
        self.sent = False  # weights, since the servers were started
        self._session = aiohttp.ClientSession(
            # A connection for each request: vLLM closes idle ones, perhaps while a request is on its way.
            connector=aiohttp.TCPConnector(limit_per_host=CONNECTIONS, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
            headers={"Authorization": f"Bearer {key}"} if (key := os.environ.get("VLLM_API_KEY")) else {},
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    async def ask(self, method: str, path: str, **given: Any) -> Answer:
        """Ask the least busy server; another one, or the same once more, if the connection is lost meanwhile.

        Raises:
            ServersLostError: If none can be reached.
        """
        for _ in range(len(self.all) + 1):
            server = await self._least_busy()
            server.running += 1
            try:
                return await self._request(server, method, path, **given)
            except aiohttp.ClientConnectionError as error:
                self._lose(server, error)
            finally:
                server.running -= 1
        raise ServersLostError(self._lost())

    async def everywhere(
        self,
        method: str,
        path: str,
        bodies: Mapping[str, Any] | None = None,
        weights: bool = False,
        **given: Any,
    ) -> list[Answer]:
        """Ask every server that can be reached, at once.

        Args:
            method: Of HTTP.
            path: Of the endpoint.
            bodies: Another body for each address, as JSON.
            weights: Whether a server has the last weights that answers 200.
            **given: What aiohttp takes besides.

        Raises:
            ServersLostError: If none can be reached.
        """

        async def one(server: Server) -> Answer | None:
            body = {"json": bodies[server.url]} if bodies else {}
            try:
                answer = await self._request(server, method, path, **given, **body)
                if weights and answer.status == 200:
                    server.outdated, server.instance = False, await self._instance(server)
            except aiohttp.ClientConnectionError as error:
                self._lose(server, error)
                server.outdated = server.outdated or weights
                return None
            server.lost_at = None
            return answer

        self.sent = self.sent or weights
        answers = [answer for answer in await asyncio.gather(*map(one, self.all)) if answer is not None]
        if not answers:
            raise ServersLostError(self._lost())
        return answers

    async def _least_busy(self) -> Server:
        for server in self.all:
            if server.lost_at is not None and time.monotonic() - server.lost_at > PAUSE:
                await self._ask_again(server)
        if not self._ready():
            await asyncio.gather(
                *(self._ask_again(server) for server in self.all if server.lost_at is not None)
            )
        if not (ready := self._ready()):
            raise ServersLostError(self._lost())
        return min(ready, key=lambda server: server.running)

    def _ready(self) -> list[Server]:
        return [server for server in self.all if server.lost_at is None and not server.outdated]

    async def _ask_again(self, server: Server) -> None:
        server.lost_at = time.monotonic()
        try:
            answer = await self._request(server, "GET", "/health")
            if answer.status != 200:
                return
            if self.sent and not server.outdated:
                instance = await self._instance(server)
                server.outdated = instance is None or instance != server.instance
        except aiohttp.ClientConnectionError:
            return
        server.lost_at = None
        logger.warning("The vLLM server %s answers again.", server.url)

    async def _instance(self, server: Server) -> str | None:
        """What tells a server's process from the one that a restart begins; None if it does not say."""
        answer = await self._request(server, "GET", "/server_info", params={"config_format": "json"})
        try:
            return answer.json()["vllm_config"]["instance_id"] or None
        except (KeyError, TypeError):
            return None

    async def _request(self, server: Server, method: str, path: str, **given: Any) -> Answer:
        async with self._session.request(
            method, server.url + path, allow_redirects=False, **given
        ) as response:
            return Answer(server.url, response.status, await response.read(), response.content_type)

    def _lose(self, server: Server, error: Exception) -> None:
        if server.lost_at is None:
            logger.error("The vLLM server %s is lost: %s %s", server.url, type(error).__name__, error)
        server.lost_at = time.monotonic()

    def _lost(self) -> str:
        servers = f"None of the vLLM servers {[server.url for server in self.all]}"
        if outdated := [server.url for server in self.all if server.outdated]:
            return (
                f"{servers} has the last weights and can be reached. {outdated} were restarted after weights "
                "had been sent, or missed some: they are asked again once they got weights."
            )
        return f"{servers} can be reached."
