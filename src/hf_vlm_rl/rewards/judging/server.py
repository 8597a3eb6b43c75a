"""An OpenAI-compatible chat server: asked, asked again where that may help, and never believed.

Retried are status 429, 5xx and connections that fail, drop or take too long.
"""

import asyncio
import email.utils
import json
import random
import time
from collections.abc import Mapping
from typing import Any, Self

import aiohttp

from ...errors import RewardError
from .usage import NoVerdictError, Usage

LOST = (aiohttp.ClientError, TimeoutError)
# Every row would meet these: the address, the key or the name of the model is wrong.
SETUP = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405})
# Seconds: of the first pause, at most; and of the longest, whoever asks for it.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
# Of an answer, in bytes: a verdict is short.
MOST_BYTES = 1 << 20


class ChatServer:
    """Asks a server, inside one event loop, as an asynchronous context.

    Args:
        url: The base address, such as `http://gpu:8000/v1`.
        key: The API key; "" for none.
        timeout: Seconds for one request.
        retries: How often a request is sent again.
        budget: The most requests that `usage` may count; None for any number.
        usage: Counts what is sent.
    """

    def __init__(self, url: str, key: str, timeout: float, retries: int, budget: int | None, usage: Usage):
        self._address, self._key, self._timeout = f"{url.rstrip('/')}/chat/completions", key, timeout
        self._retries, self._budget, self._usage = retries, budget, usage
        # Its own state: a pause must not change what a run draws.
        self._random = random.SystemRandom()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._session.close()

    async def answer(self, body: Mapping[str, Any]) -> str:
        """The content of the message that the server answers with.

        Raises:
            NoVerdictError: If it gives none, or the budget is spent.
            RewardError: If it answers with a status that every request would get.
        """
        attempt = 0
        while True:
            self._usage.spend(self._budget, again=attempt > 0)
            pause = self._random.uniform(0, min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))
            try:
                status, headers, text = await self._post(body)
            except LOST as error:
                failure = NoVerdictError("no connection", f"{type(error).__name__} {error}")
            else:
                if status == 200:
                    return self._content(text)
                hint = ": structured=False leaves response_format out" if "response_format" in text else ""
                failure = NoVerdictError(f"status {status}", text[:300] + hint)
                if status in SETUP:
                    raise RewardError(
                        f"The judge at {self._address} answers with {failure}. Expected a server of OpenAI's "
                        "chat completions; check url, model and the API key."
                    )
                if status != 429 and status < 500:
                    raise failure
                pause = max(pause, retry_after(headers))
            if attempt == self._retries or pause > LONGEST_PAUSE:
                raise failure
            await asyncio.sleep(pause)
            attempt += 1

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], str]:
        # A redirect would take the key elsewhere.
        async with self._session.post(self._address, json=body, allow_redirects=False) as response:
            content = b""
            async for chunk in response.content.iter_chunked(1 << 16):
                content += chunk
                if len(content) > MOST_BYTES:
                    raise NoVerdictError("too long", f"more than {MOST_BYTES} bytes")
            text = content.decode(errors="replace")
            # Servers quote what they were sent. The key goes nowhere from here.
            return response.status, response.headers, text.replace(self._key, "***") if self._key else text

    def _content(self, text: str) -> str:
        try:
            answer = json.loads(text)
            choice = answer["choices"][0]
            content = choice["message"]["content"]
        except (ValueError, RecursionError, LookupError, TypeError) as error:
            raise NoVerdictError("no completion", f"{text[:200]!r}") from error
        usage = answer.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        self._usage.count(tokens=tokens if type(tokens) is int and tokens > 0 else 0)
        if choice.get("finish_reason") == "length":
            raise NoVerdictError("cut off", "raise max_tokens in options")
        if not isinstance(content, str):  # a refusal
            raise NoVerdictError("no completion", f"{text[:200]!r}")
        return content


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, by `Retry-After` as a number or a date; 0 if it does not."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value) if len(value) < 10 else float("inf")
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
