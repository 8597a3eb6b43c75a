"""The vLLM servers behind a front: the least busy one answers, and all get the same weights.

A server drops out that cannot be reached, or that answers neither a request nor `/health`; it is asked again
a while later. One that answers with errors is asked last for a while. A server that was restarted since
weights were sent has the checkpoint's and stays out until weights come again: vLLM tells by the
`instance_id` of `/server_info`, which is another one in each process. So does one that missed a part of the
last weights.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

logger = logging.getLogger(__name__)

# Seconds until a lost server is asked again while others answer; for an error more, a server is asked last.
PAUSE, LONGEST_PAUSE = 2.0, 30.0
# Seconds after which a server that does not answer has to say that it is well, and within which.
WATCH = 30.0
# The same for questions that are answered at once.
SHORT = aiohttp.ClientTimeout(sock_connect=5.0, sock_read=10.0)
# Seconds without an answer after which a server may have been restarted; to load a model takes longer.
IDLE = 5.0
# Requests to one server at a time. It queues requests itself.
CONNECTIONS = 256


class ServersLostError(ConnectionError):
    """No vLLM server can be reached, or none that has the last weights."""


@dataclass
class Server:
    """One vLLM server.

    Attributes:
        running: Requests that it has not answered.
        lost_at: When it could not be reached (`time.monotonic`); None while it can.
        outdated: Whether it may lack weights that were sent.
        missed: Whether a part of the weights that are being sent did not reach it.
        instance: The process that got the last weights; None if none were sent, or it does not say.
        answered_at: When it answered last (`time.monotonic`).
        failures: How many of its last answers were errors of its own (5xx), without one that was not.
    """

    url: str
    running: int = 0
    lost_at: float | None = None
    outdated: bool = False
    missed: bool = False
    instance: str | None = None
    answered_at: float = 0.0
    failures: int = 0

    def asked_last(self) -> bool:
        """Whether it failed so lately that others are asked before it."""
        pause = min(PAUSE * self.failures, LONGEST_PAUSE)
        return time.monotonic() - self.answered_at < pause


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
    """Asks one or several vLLM servers, such as `http://gpu:8000`; inside one event loop.

    They get $VLLM_API_KEY, vLLM's `--api-key`, if it is set.
    """

    def __init__(self, urls: tuple[str, ...]):
        self.all = [Server(url.rstrip("/")) for url in urls]
        self.sent = False  # weights, since the servers were started
        self._asked_again = set[asyncio.Task]()
        self._session = aiohttp.ClientSession(
            # A connection for each request: vLLM closes idle ones, perhaps while a request is on its way.
            connector=aiohttp.TCPConnector(limit_per_host=CONNECTIONS, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
            headers={"Authorization": f"Bearer {key}"} if (key := os.environ.get("VLLM_API_KEY")) else {},
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    async def ask(self, method: str, path: str, but: str | None = None, **options: Any) -> Answer:
        """Ask the least busy server; another one, or the same once more, if the connection is lost meanwhile.

        The server at the address `but` is asked only if there is no other.

        Raises:
            ServersLostError: If none can be reached.
        """
        for _ in range(len(self.all) + 1):
            server = await self._least_busy(but)
            server.running += 1
            try:
                answer = await self._watched(server, method, path, **options)
            except aiohttp.ClientError as error:
                self._lose(server, error)
            else:
                server.answered_at = time.monotonic()
                server.failures = server.failures + 1 if answer.status >= 500 else 0
                return answer
            finally:
                server.running -= 1
        raise ServersLostError(self._lost())

    async def everywhere(
        self,
        method: str,
        path: str,
        bodies: Mapping[str, Any] | None = None,
        weights: str | None = None,
        **options: Any,
    ) -> list[Answer]:
        """Ask every server that can be reached, at once.

        `bodies` has another JSON body for each address. `weights` is a step of sending weights: "begin",
        "part", "end", or "whole", all in one.

        Raises:
            ServersLostError: If none can be reached.
        """

        async def one(server: Server) -> Answer | None:
            body = {"json": bodies[server.url]} if bodies else {}
            try:
                answer = await self._watched(server, method, path, **options, **body)
            except aiohttp.ClientError as error:
                self._lose(server, error)
                return None
            server.lost_at = None
            return answer

        replies = await asyncio.gather(*map(one, self.all))
        answers = [answer for answer in replies if answer is not None]
        if weights:
            await self._note_weights(weights, {answer.url for answer in answers if answer.status == 200})
        if not answers:
            raise ServersLostError(self._lost())
        return answers

    async def _note_weights(self, step: str, took: Collection[str]) -> None:
        """Remember which servers took a step of sending weights, and at its end, which have all of them."""
        is_last = bool(took) and step in ("end", "whole")
        self.sent = self.sent or is_last
        for server in self.all:
            missed = server.url not in took
            server.missed = missed if step in ("begin", "whole") else server.missed or missed
            if is_last:
                server.outdated, server.missed = server.missed, False
            elif missed and (took or server.lost_at is not None):
                server.outdated = True  # others are ahead of it
            if is_last and not server.outdated:
                try:
                    server.instance, server.answered_at = await self._instance(server), time.monotonic()
                except aiohttp.ClientError as error:
                    self._lose(server, error)

    async def _least_busy(self, but: str | None) -> Server:
        now = time.monotonic()
        for server in self.all:
            if server.lost_at is not None and now - server.lost_at > PAUSE:
                server.lost_at = now
                again = asyncio.create_task(self._ask_again(server))
                self._asked_again.add(again)
                again.add_done_callback(self._asked_again.discard)
        if not self._ready():
            lost = [server for server in self.all if server.lost_at is not None]
            await asyncio.gather(*map(self._ask_again, lost))
        while ready := self._ready():
            server = min(ready, key=lambda each: (each.url == but, each.asked_last(), each.running))
            if not self.sent or not server.instance or time.monotonic() - server.answered_at < IDLE:
                return server
            try:
                await self._check_instance(server)
                if not server.outdated:
                    return server
            except aiohttp.ClientError as error:
                self._lose(server, error)
        raise ServersLostError(self._lost())

    async def _check_instance(self, server: Server) -> None:
        """Leave out a server that is not, or does not say it is, the process that got the last weights."""
        instance = await self._instance(server)
        server.outdated = instance is None or instance != server.instance

    async def dtype(self, url: str) -> str:
        """The name of the type that the server at this address computes in; "" if it does not say."""
        server = next(server for server in self.all if server.url == url)
        try:
            return str((await self._config(server))["model_config"]["dtype"])
        except (aiohttp.ClientError, KeyError, TypeError):
            return ""

    def _ready(self) -> list[Server]:
        return [server for server in self.all if server.lost_at is None and not server.outdated]

    async def _ask_again(self, server: Server) -> None:
        server.lost_at = time.monotonic()
        try:
            if (await self._request(server, "GET", "/health", timeout=SHORT)).status != 200:
                return
            if self.sent and not server.outdated:
                await self._check_instance(server)
        except aiohttp.ClientError:
            return
        server.lost_at = None
        logger.warning("The vLLM server %s answers again.", server.url)

    async def _watched(self, server: Server, method: str, path: str, **options: Any) -> Answer:
        """The answer of a server that is well as long as it takes.

        Raises:
            aiohttp.ClientError: If the connection is lost, or if it does not answer `/health` any more.
        """
        request = asyncio.create_task(self._request(server, method, path, **options))
        try:
            while not (await asyncio.wait({request}, timeout=WATCH))[0]:
                bounds = aiohttp.ClientTimeout(sock_connect=5.0, sock_read=WATCH)
                health = await self._request(server, "GET", "/health", timeout=bounds)
                if health.status != 200 and not request.done():
                    raise aiohttp.ServerConnectionError(f"{path}: no answer, and {health.status} to /health")
            return request.result()
        finally:
            request.cancel()

    async def _instance(self, server: Server) -> str | None:
        """What tells a server's process from the one that a restart begins; None if it does not say."""
        return (await self._config(server)).get("instance_id") or None

    async def _config(self, server: Server) -> dict[str, Any]:
        asked = {"params": {"config_format": "json"}, "timeout": SHORT}
        info = (await self._request(server, "GET", "/server_info", **asked)).json()
        config = info.get("vllm_config") if isinstance(info, dict) else None
        return config if isinstance(config, dict) else {}

    async def _request(self, server: Server, method: str, path: str, **options: Any) -> Answer:
        async with self._session.request(
            method, server.url + path, allow_redirects=False, **options
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
