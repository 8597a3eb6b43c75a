"""`evaluate`: a policy's completions for a dataset, and what rewards make of them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from datasets import Dataset, IterableDataset
from peft import PeftModel
from tqdm.auto import tqdm

from ..data.checked_image import rows_or_errors
from ..data.undecoded import stored_images, stored_rows
from ..errors import ImageError
from ..loading.adapters.effect import adapters_disabled, check_base
from ..policy.eval_mode import evaluating
from ..policy.policy import VLMPolicy
from ..processing.images.reference import is_stored
from ..processing.images.thumbnail import thumbnails
from ..processing.tickets.beside_ids import decode_tickets
from ..processing.trainer_rows import Encoded, encode, read
from ..rewards.calling import call, columns_as_lists, unique_names
from .generate import NO_SAMPLING, Completion, complete, seeded, warn_of_equal_samples
from .kept_rows import EvaluatedRow, reference_texts
from .ranks import Ranks, gathered
from .result import EvaluationResult, RewardScores

# Batches that are encoded together and sorted by length.
WINDOW = 16


def evaluate(
    policy: Any,
    dataset: Iterable[Mapping[str, Any]],
    reward_funcs: Callable | Sequence[Callable],
    *,
    batch_size: int = 8,
    num_generations: int = 1,
    do_sample: bool | None = None,
    max_new_tokens: int = 512,
    thresholds: Mapping[str, float] | None = None,
    seed: int = 0,
    keep_rows: int = 100,
    on_error: Literal["raise", "skip"] = "raise",
    distributed: bool = False,
    progress: bool = False,
    **generation_kwargs: Any,
) -> EvaluationResult:
    """Generate completions for every row of a dataset and reward them.

    ```python
    result = evaluate(policy, held_out, [iou_reward, format_reward], batch_size=16)
    print(result)
    ```

    Training mode and torch's random numbers are afterwards as they were.

    Args:
        policy: An `AutoVLMPolicy`, or a `PeftModel` around one.
        dataset: Rows in TRL's columns: `prompt` (a string or messages), `image` or `images` where there are
            some, and what the rewards read. A `datasets.Dataset`, also a streaming one, or a list of dicts.
        reward_funcs: TRL reward functions, called as `GRPOTrainer` calls them.
        batch_size: Completions generated at once.
        num_generations: Completions per row; more than 1 needs sampling.
        do_sample: Sample instead of taking the likeliest token. Default: if `num_generations` > 1.
        max_new_tokens: Longest completion.
        thresholds: Name of a reward to the least value with which a completion passes, for pass@k.
        seed: Seed of the sampling. The same seed, `batch_size` and number of processes give the same
            completions.
        keep_rows: How many of the first rows are kept to look at, with texts and thumbnails.
        on_error: "raise", or "skip" to leave out rows that cannot be encoded, and count them. Errors of
            reward functions are always raised.
        distributed: Every process of a distributed run calls this, and they share the rows; all of them get
            the result. Rewards are computed by the first.
        progress: Show a progress bar.
        **generation_kwargs: For `generate`: `temperature`, `top_p`, ...

    Raises:
        ImageError: If a row's images are unusable; names the row.
        RewardError: If a reward function raises or returns anything but a finite number or None for each
            completion; names the row.
        ValueError: If an argument is out of range, a row has no prompt, or the dataset has no row or is a
            `DatasetDict`; if adapters are disabled and the model is then not their base (PiSSA, OLoRA).
    """
    if adapters_disabled(policy):
        check_base(policy)
    functions = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
    names = unique_names(functions)
    do_sample = num_generations > 1 if do_sample is None else do_sample
    check_dataset(dataset)
    _check(policy, names, batch_size, num_generations, do_sample, thresholds, on_error)
    if "num_return_sequences" in generation_kwargs:
        raise ValueError("Got num_return_sequences. Expected num_generations.")
    options = ({} if do_sample else NO_SAMPLING) | {"use_cache": True} | generation_kwargs
    options |= {"do_sample": do_sample, "max_new_tokens": max_new_tokens}
    if num_generations > 1:
        warn_of_equal_samples(policy, options)
    settings = {key: value for key, value in options.items() if isinstance(value, bool | int | float | str)}
    settings |= {"num_generations": num_generations, "batch_size": batch_size, "seed": seed}
    ranks = Ranks(policy, distributed)
    if ranks.sharded:
        options["synced_gpus"] = True  # none stops generating before the others
    generating = _Generating(policy, num_generations, batch_size, options, keep_rows, on_error == "skip")
    scored: list[_Scored] = []
    failures: dict[int, str] = {}
    total = len(dataset) if isinstance(dataset, Sized) else None  # a stream has none
    size = max(1, batch_size * WINDOW // num_generations) * (1 if ranks.sharded else ranks.count)
    with (
        evaluating(policy),
        # Processes that do the same rows must sample the same tokens.
        seeded(policy, seed if ranks.sharded else seed + ranks.index),
        gathered(policy),
        tqdm(total=total, disable=not (progress and ranks.index == 0), desc="evaluating", leave=False) as bar,
    ):
        for window in windows(dataset, size):
            done = sorted(ranks.gather(partial(generating, ranks.share(window))), key=lambda row: row.index)
            failures |= {row.index: row.failure for row in done if row.failure is not None}
            scored += ranks.on_first(partial(_score, dict(window), done, functions, names, keep_rows))
            bar.update(len(window))
    if not scored:
        first = next(iter(failures.values()), "the dataset is empty")
        raise ValueError(f"No row was evaluated, {len(failures)} failed. The first: {first}")
    values = dict(zip(names, zip(*(row.values for row in scored), strict=True), strict=True))
    return EvaluationResult(
        rewards={name: RewardScores(column, (thresholds or {}).get(name)) for name, column in values.items()},
        row_ids=tuple(row.row_id for row in scored),
        rows=tuple(row.shown for row in scored if row.shown is not None),
        failures=failures,
        clipped=sum(row.clipped for row in scored) / (len(scored) * num_generations),
        mean_length=sum(row.tokens for row in scored) / (len(scored) * num_generations),
        settings=settings,
    )


@dataclass(frozen=True)
class _Done:
    """A row with its completions, still without rewards, or why it could not be encoded (`failure`).

    `row_id` is a hash of the row's ids and images; "" with a failure. `images` are thumbnails, for rows that
    are kept.
    """

    index: int
    row_id: str = ""
    completions: tuple[Completion, ...] = ()
    images: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class _Scored:
    """What the result needs of a row: of a large dataset, no completions are kept.

    Attributes:
        row_id: Hash of its ids and images.
        values: Per reward, a value for each completion.
        clipped: Completions that reached the longest length.
        tokens: Of all completions.
        shown: The row itself, if it is one of those that are kept.
    """

    row_id: str
    values: tuple[tuple[float | None, ...], ...]
    clipped: int
    tokens: int
    shown: EvaluatedRow | None


@dataclass(frozen=True)
class _Generating:
    """Rows of a window to rows with completions."""

    policy: Any
    copies: int
    batch_size: int
    options: dict[str, Any]
    keep_rows: int
    skip: bool

    def __call__(self, window: list[tuple[int, Mapping[str, Any]]]) -> list[_Done]:
        encoded = {index: self._encoded(index, row) for index, row in window}
        good = {index: prompt for index, prompt in encoded.items() if isinstance(prompt, Encoded)}
        texts = complete(self.policy, list(good.values()), self.copies, self.batch_size, self.options)
        done = [_Done(index, failure=error) for index, error in encoded.items() if isinstance(error, str)]
        for (index, prompt), completions in zip(good.items(), texts, strict=True):
            shown = self._pictures(prompt.tickets) if index < self.keep_rows else ()
            done.append(_Done(index, prompt.row_id, tuple(completions), shown))
        return done

    def _encoded(self, index: int, row: Mapping[str, Any] | ImageError) -> Encoded | str:
        try:
            if isinstance(row, ImageError):
                raise row
            return encode(self.policy.processing_class, index, row)
        except ValueError as error:
            if not self.skip:
                raise
            return str(error)

    def _pictures(self, carried: Any) -> tuple[str, ...]:
        tickets = [ticket for ticket, _ in decode_tickets(carried) or []]
        return thumbnails(self.policy.processing_class.image_store, tickets)


def _score(
    window: Mapping[int, Mapping[str, Any]],
    done: list[_Done],
    functions: list[Callable],
    names: list[str],
    keep_rows: int,
) -> list[_Scored]:
    """The rows without a failure, with the values of all rewards."""
    good = [(read(row.index, window[row.index]), row) for row in done if row.failure is None]
    if not good:
        return []
    repeated = [(row, completion) for row, done_row in good for completion in done_row.completions]
    arguments = {
        "prompts": [row.prompt for row, _ in repeated],
        "completions": [row.completion(completion.text) for row, completion in repeated],
        "completion_ids": [completion.ids for _, completion in repeated],
    }
    arguments |= columns_as_lists([row.columns for row, _ in repeated])
    flat = [call(function, name, arguments) for function, name in zip(functions, names, strict=True)]
    copies = len(repeated) // len(good)
    scored = []
    for number, (row, done_row) in enumerate(good):
        own = slice(number * copies, (number + 1) * copies)
        values = tuple(tuple(column[own]) for column in flat)
        completions = done_row.completions
        shown = None
        if row.index < keep_rows:
            texts = tuple(completion.text for completion in completions)
            by_name = dict(zip(names, values, strict=True))
            reference = reference_texts(row.columns)
            shown = EvaluatedRow(row.index, row.text, texts, by_name, done_row.images, reference)
        clipped = sum(completion.clipped for completion in completions)
        tokens = sum(len(completion.ids) for completion in completions)
        scored.append(_Scored(done_row.row_id, values, clipped, tokens, shown))
    return scored


def check_dataset(dataset: Any) -> None:
    """Refuse what has no rows: a `DatasetDict`, a path, a single row.

    Raises:
        ValueError: If it is one of these.
    """
    if isinstance(dataset, Mapping | str) or not isinstance(dataset, Iterable):
        raise ValueError(
            f"Got a {type(dataset).__name__} as dataset. Expected a datasets.Dataset or a list of rows: of a "
            "DatasetDict pass one split, of a file what load_dataset makes of it."
        )


def _check(
    policy: Any,
    names: list[str],
    batch_size: int,
    num_generations: int,
    do_sample: bool,
    thresholds: Mapping[str, float] | None,
    on_error: str,
) -> None:
    inner = policy.get_base_model() if isinstance(policy, PeftModel) else policy
    if not isinstance(inner, VLMPolicy):
        raise ValueError(
            f"Got a {type(policy).__name__}. Expected an AutoVLMPolicy, or a PeftModel around one."
        )
    if not names:
        raise ValueError("Got no reward function. Expected at least one.")
    if batch_size < 1 or num_generations < 1:
        raise ValueError(f"Got {batch_size=} and {num_generations=}. Expected at least 1.")
    if num_generations > 1 and not do_sample:
        raise ValueError(f"Got {num_generations=} with do_sample=False: they would all be the same.")
    if unknown := sorted(set(thresholds or {}) - set(names)):
        raise ValueError(f"Got thresholds for {unknown}. Expected names of rewards: {names}.")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"Got {on_error=}. Expected 'raise' or 'skip'.")


def windows(dataset: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    """Pairs of index and row, `size` at a time: a dataset need not fit into memory.

    In the place of a row that `datasets` cannot decode there is the error.
    """
    rows: Iterator[tuple[int, Any]] = enumerate(dataset)
    if isinstance(dataset, Dataset):
        rows = _read_one_by_one(dataset)
    elif isinstance(dataset, IterableDataset) and dataset.features:
        read = enumerate(rows_or_errors(dataset))
        rows = ((index, row.at_row(index) if isinstance(row, ImageError) else row) for index, row in read)
    while window := list(itertools.islice(rows, size)):
        yield window


def _read_one_by_one(dataset: Dataset) -> Iterator[tuple[int, Mapping[str, Any] | ImageError]]:
    for index in range(len(dataset)):
        try:
            yield index, dataset[index]
        except ImageError as error:
            yield index, error.at_row(index)
        except Exception as error:  # PIL's formats raise whatever their parsers meet
            row = stored_rows(dataset)[index]
            stored = filter(is_stored, stored_images(dataset.features, row))
            files = [image["path"] for image in stored if image["path"]]
            yield index, ImageError(f"cannot be decoded: {error}. Its images are {files or 'bytes'}.", index)
