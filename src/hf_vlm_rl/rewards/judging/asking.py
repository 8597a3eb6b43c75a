"""A batch of questions: equal ones are asked once, known ones not at all, the others at the same time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .cache import VerdictCache
from .questions import Question
from .usage import NoVerdictError, Usage


class Ask:
    """Asks one judge about a batch.

    Args:
        server: A `ChatServer` that is open.
        url: Its address.
        body: What each request has besides its messages.
        read: Gives a verdict's value, or raises `NoVerdictError`.
        cache: Of verdicts, or None.
        concurrency: Requests at the same time.
        usage: Counts.
    """

    def __init__(
        self,
        server: Any,
        url: str,
        body: Mapping[str, Any],
        read: Callable[[str], Any],
        cache: VerdictCache | None,
        concurrency: int,
        usage: Usage,
    ):
        self._server, self._url, self._body, self._read = server, url, dict(body), read
        self._cache, self._usage, self._free = cache, usage, asyncio.Semaphore(concurrency)

    async def __call__(self, questions: Sequence[Question]) -> list[Any]:
        """The values of Q verdicts, or `NoVerdictError`s.

        Raises:
            RewardError: If the server refuses every request.
        """
        keys = [question.key(self._url, self._body) for question in questions]
        distinct = dict(zip(keys, questions, strict=True))
        verdicts = [self._verdict(key, question) for key, question in distinct.items()]
        values = dict(zip(distinct, await asyncio.gather(*verdicts, return_exceptions=True), strict=True))
        for value in values.values():
            if isinstance(value, BaseException) and not isinstance(value, NoVerdictError):
                raise value
        return [values[key] for key in keys]

    async def _verdict(self, key: str, question: Question) -> Any:
        text = None if self._cache is None else self._cache.read(key)
        if text is not None:
            with suppress(NoVerdictError):  # somebody changed the file
                value = self._read(text)
                self._usage.count(cached=1)
                return value
        async with self._free:
            try:
                messages = await asyncio.to_thread(question.messages)
                text = await self._server.answer({**self._body, "messages": messages})
                value = self._read(text)
            except NoVerdictError as failure:
                self._usage.count(failure=failure.reason)
                raise
        self._usage.count(verdicts=1)
        if self._cache is not None:
            self._cache.write(key, text)
        return value
