"""A batch of questions: equal ones are asked once, known ones not at all, the others at the same time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .cache import VerdictCache
from .questions import Question
from .usage import NoVerdictError, Usage


@dataclass(frozen=True)
class Ask:
    """Asks one judge about a batch: a `ChatServer` that is open, at `url`.

    `body` is what each request has besides its messages. `read` gives a verdict's value, or raises
    `NoVerdictError`. `free` bounds the requests at the same time.
    """

    server: Any
    url: str
    body: Mapping[str, Any]
    read: Callable[[str], Any]
    cache: VerdictCache | None
    free: asyncio.Semaphore
    usage: Usage

    async def __call__(self, questions: Sequence[Question]) -> list[Any]:
        """The values of Q verdicts, or `NoVerdictError`s.

        Raises:
            RewardError: If the server refuses every request.
        """
        keys = [question.key(self.url, self.body) for question in questions]
        distinct = dict(zip(keys, questions, strict=True))
        verdicts = [self._verdict(key, question) for key, question in distinct.items()]
        values = dict(zip(distinct, await asyncio.gather(*verdicts, return_exceptions=True), strict=True))
        for value in values.values():
            if isinstance(value, BaseException) and not isinstance(value, NoVerdictError):
                raise value
        return [values[key] for key in keys]

    async def _verdict(self, key: str, question: Question) -> Any:
        text = None if self.cache is None else self.cache.read(key)
        if text is not None:
            with suppress(NoVerdictError):  # somebody changed the file
                value = self.read(text)
                self.usage.count(cached=1)
                return value
        async with self.free:
            try:
                messages = await asyncio.to_thread(question.messages)
                text = await self.server.answer({**self.body, "messages": messages})
                value = self.read(text)
            except NoVerdictError as failure:
                self.usage.count(failure=failure.reason)
                raise
        self.usage.count(verdicts=1)
        if self.cache is not None:
            self.cache.write(key, text)
        return value
