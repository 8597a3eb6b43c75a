"""What judges share: a server is asked about all rows of a batch at once, and every failure is told."""

import asyncio
import logging
import math
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from ...errors import RewardError
from ..base import Reward, need
from .asking import Ask
from .cache import VerdictCache
from .rows import JudgedRow, RowReader
from .usage import NoVerdictError, Usage
from .verdicts import read_verdict, schema

logger = logging.getLogger(__name__)

FAILED = ("group", "row", "raise")
Score = float | NoVerdictError | None


@dataclass(frozen=True, kw_only=True)
class ImageJudge(Reward):
    """A reward that a model on an OpenAI-compatible chat server gives; it sees the row's images.

    Needs aiohttp. The key is read from an environment variable, and is in no cache, log or `repr`.

    Args:
        url: The base address, such as `http://gpu:8000/v1`.
        model: The judge's name on that server.
        criteria: What makes an answer good, for the judge.
        reference: The column with right answers, which the judge is shown; rows with None there get None.
            Without it, the judge has the images alone.
        tag: The part of a completion that is judged, see `extract_answer`; None for all of it.
        tokenizer: `policy.tokenizer`, where the images are inside the texts (`with_tickets`). Otherwise they
            come from the columns `images` or `image`, or from the blocks of the prompts.
        failed: What one failure does: "group" gives None to all completions of its prompt in this process,
            "row" to that completion alone, "raise" ends the run with a `RewardError`.
        cache: A folder for verdicts, or None.
        budget: The most requests in this process, retries included; None for any number. Once it is spent,
            all rows that the cache does not know are failures.
        concurrency: Requests at the same time, in each process.
        retries: How often a request is sent again after status 429, 5xx, or a lost connection.
        timeout: Seconds for one request.
        key_variable: The environment variable with the API key. Without it, none is sent.
        structured: Send the verdict's JSON schema as `response_format`. False for servers that refuse it.
        options: Further fields of each request.

    Attributes:
        usage: What was sent and answered.

    Raises:
        ImportError: If aiohttp is not installed.
        OSError: If the cache cannot be written to.
        ValueError: If an argument is out of its range, or the address has a password or query.
    """

    url: str
    model: str
    criteria: str
    reference: str | None = None
    tag: str | None = None
    tokenizer: Any = field(default=None, compare=False, repr=False)
    failed: Literal["group", "row", "raise"] = "group"
    cache: str | os.PathLike | None = None
    budget: int | None = None
    concurrency: int = 16
    retries: int = 4
    timeout: float = 120.0
    key_variable: str = "JUDGE_API_KEY"
    structured: bool = True
    options: Mapping[str, Any] = field(
        default_factory=lambda: {"temperature": 0.0, "max_tokens": 512}, hash=False
    )
    usage: Usage = field(default_factory=Usage, init=False, compare=False, repr=False)

    # The key of a verdict's value, and what it may be.
    value: ClassVar[str]

    def __post_init__(self) -> None:
        need("aiohttp", "aiohttp")
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"Got url={self.url!r}. Expected a base address such as http://gpu:8000/v1.")
        if address.path.rstrip("/").endswith("/chat/completions"):
            raise ValueError(f"Got url={self.url!r}. Expected the base address: leave out /chat/completions.")
        if address.username or address.password or address.query or address.fragment:
            raise ValueError(
                f"Got a url of {address.hostname} with a user, a password or a query. Expected a base "
                f"address such as http://gpu:8000/v1, and the API key in ${self.key_variable}."
            )
        least = {"concurrency": 1, "retries": 0, "budget": 0}
        for name, low in least.items():
            number = getattr(self, name)
            if not (number is None and name == "budget") and (type(number) is not int or number < low):
                raise ValueError(f"Got {name}={number!r}. Expected a whole number, {low} or more.")
        if not 0 < self.timeout < math.inf or self.failed not in FAILED:
            raise ValueError(
                f"Got timeout={self.timeout!r} and failed={self.failed!r}. Expected seconds above 0; one of "
                f"{FAILED}."
            )
        if self.cache is not None:
            VerdictCache(self.cache)

    @property
    @abstractmethod
    def values(self) -> Sequence[int | str]:
        """What a verdict may be."""

    @abstractmethod
    async def scores(self, rows: Sequence[JudgedRow], ask: Ask) -> list[float | NoVerdictError]:
        """One number per row, or why there is none.

        Args:
            rows: R rows.
            ask: Gives the verdicts of questions, in order.
        """

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion; None where a row is not for this reward, or has failed.

        Args:
            completions: Strings, or lists of messages.
            **columns: `prompts` (strings or messages), the images, and what else the judge reads.

        Raises:
            ColumnError: If a column is missing or holds something else, or an image cannot be read.
            RewardError: If the server refuses every request, or has not answered one question of a first
                batch; with `failed="raise"`, at the first failure.
        """
        return _finished(self._rewards(completions, columns))

    def as_coroutine(self) -> Callable[..., Coroutine[Any, Any, list[float | None]]]:
        """The same as an async function. GRPO and RLOO await all of these at the same time."""

        async def judged(completions: list, **columns: Any) -> list[float | None]:
            return await self._rewards(completions, columns)

        judged.__name__ = self.__name__
        return judged

    async def _rewards(self, completions: list, columns: Mapping[str, Any]) -> list[float | None]:
        split = None if self.tokenizer is None else self.tokenizer.without_marks
        reader = RowReader(self.__name__, self.reference, self.tag, split)
        rows = await asyncio.to_thread(reader.read, completions, columns)
        judged = [row for row in rows if row is not None]
        key = os.environ.get(self.key_variable, "").strip()
        # A module of its own, as aiohttp is an extra.
        from .server import ChatServer

        before = self.usage.cached
        async with ChatServer(self.url, key, self.timeout, self.retries, self.budget, self.usage) as server:
            numbers = iter(await self.scores(judged, self._asking(server)))
        scores: list[Score] = [None if row is None else next(numbers) for row in rows]
        self._tell(scores, columns, self.usage.cached - before)
        pairs = list(zip(rows, scores, strict=True))
        lost = {row.group for row, score in pairs if row and isinstance(score, NoVerdictError)}
        whole = self.failed == "group"
        return [
            None
            if row is None or isinstance(score, NoVerdictError) or (whole and row.group in lost)
            else score
            for row, score in pairs
        ]

    def _asking(self, server: Any) -> Ask:
        cache = None if self.cache is None else VerdictCache(self.cache)
        body = {"model": self.model, **self.options}
        if self.structured:
            asked = {"name": "verdict", "strict": True, "schema": schema(self.value, self.values)}
            body["response_format"] = {"type": "json_schema", "json_schema": asked}
        read = partial(read_verdict, name=self.value, values=self.values)
        return Ask(server, self.url, body, read, cache, asyncio.Semaphore(self.concurrency), self.usage)

    def _tell(self, scores: Sequence[Score], columns: Mapping[str, Any], cached: int) -> None:
        """Log failures; raise where nobody could learn from what is left."""
        judged = [score for score in scores if score is not None]
        failures = [score for score in judged if isinstance(score, NoVerdictError)]
        log = columns.get("log_metric")
        if callable(log):
            # All processes must log the same names, or trainers wait for ever; they leave nan out.
            log(f"{self.__name__}/failed", len(failures) / len(judged) if judged else math.nan)
            log(f"{self.__name__}/cached", cached)
        if not failures:
            return
        reasons = Counter(failure.reason for failure in failures)
        message = (
            f"{self.__name__}: {len(failures)} of {len(judged)} completions have no verdict of "
            f"{self.model!r} ({', '.join(f'{reason}: {count}' for reason, count in reasons.most_common())}). "
            f"The first: {failures[0]}"
        )
        never = self.usage.verdicts + self.usage.cached == 0 and "budget" not in reasons
        if self.failed == "raise" or (never and len(failures) == len(judged)):
            raise RewardError(
                f"{message}. Expected a verdict; check the server at {self.url}."
            ) from failures[0]
        rest = ", and so is that of their groups" if self.failed == "group" else ""
        logger.warning("%s. Their reward is None%s.", message, rest)


def _finished(work: Coroutine[Any, Any, list[float | None]]) -> list[float | None]:
    """What a coroutine returns, also where a loop runs already, as in a notebook."""

    def run() -> list[float | None]:
        # With a factory, the loop does not become the thread's own.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
