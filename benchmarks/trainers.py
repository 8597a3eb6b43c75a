"""Stock TRL on the stock model against stock TRL on the policy: same weights, data and seeds.

`python -m benchmarks.trainers` trains the two in turns in one process, one step each, and prints per shape
the ratio stock / policy of each phase's time, of the whole step's, and of the peak memory of forward and
backward, next to the token ratio that bounds the update, and what both sides took. Figures are medians.
"""

import argparse
import itertools
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import trl
from datasets import Dataset
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

from hf_vlm_rl import VLMPolicy

from .flops import update_flops
from .lengths import lengths
from .models import TILING, image, pair
from .probe import PHASES, Probe
from .sizes import SIZES
from .study import USUAL, cells

QUESTION = "What is it?"
COLUMNS = [
    "model", "trainer", "rows", "tiles", "prompt", "completion", "longest / mean", "vision", "settings",
    "token ratio", *PHASES, "**step**", "update", "memory", "log-probs differ", "loss differs",
    "gradients differ", "step, s", "memory, MB",
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A step: `group` completions of one prompt with images of `tiles` tiles; DPO: half as many pairs.

    Attributes:
        trainer: One of `TRAINERS`.
        group: Rows of a step.
        tiles: Of each image.
        completion: Tokens of the longest completion.
        spread: How many times the mean that is; only GRPO's completions may differ in length.
        vision: "frozen" or "trained".
        images: Different images of the prompt, if they have tiles.
        words: Words of the prompt's text beside the question; a letter and its blank are a token each.
        checkpointing: Whether layers are run again in the backward pass.
        vocabulary: Words that the model can say; None: the 408 of its tiny tokenizer.
        micro: Rows of a forward in training, the others are accumulated; None: all in one forward. DPO: at
            least a pair, which has two rows.
        autocast: Whether TRL's `bf16=True` computes in bfloat16 with these weights.
    """

    trainer: str
    group: int
    tiles: int
    completion: int
    vision: str = "frozen"
    spread: float = 1.0
    images: int = 1
    words: int = 0
    checkpointing: bool = False
    vocabulary: int | None = None
    micro: int | None = None
    autocast: bool = False

    @property
    def settings(self) -> str:
        """What is not as in the shapes of old: in one forward, without checkpointing, a tiny vocabulary."""
        told = [
            f"{self.micro} a forward" if self.micro else "",
            "checkpointing" if self.checkpointing else "",
            f"{self.vocabulary:,} words" if self.vocabulary else "",
            "bf16" if self.autocast else "",
        ]
        return ", ".join(each for each in told if each) or "-"

    def pictures(self, name: str) -> list[Any]:
        """The images of the prompt, for a model of some size."""
        return [each for number in range(self.images) for each in image(name, self.tiles, number)]

    @property
    def text(self) -> str:
        """The prompt's text."""
        return " ".join(["x y"] * (self.words // 2) + [QUESTION])


@dataclass(frozen=True)
class Measured:
    """A shape's figures; pairs are (stock, policy).

    Attributes:
        name: One of `SIZES`.
        shape: The shape.
        prompt: Tokens of the prompt.
        seconds: Of each phase and the whole "step": medians.
        peaks: Bytes of forward and backward above what was held before.
        differences: Of log-probs, loss, and gradients relative to the largest; None: stock gives no logits.
        report: The policy's `sharing_report()`.
        turns: Steps that the medians are of.
        flops: Of an update's decoder and head, on unique tokens and on all tokens of the batch.
    """

    name: str
    shape: Shape
    prompt: int
    seconds: tuple[Mapping[str, float], Mapping[str, float]]
    peaks: tuple[int, int]
    differences: tuple[float | None, float, float]
    report: Mapping[str, Any]
    turns: int
    flops: tuple[float, float]

    @property
    def token_ratio(self) -> float:
        """Tokens of the batch over those that the decoder computed."""
        return self.report["tokens"] / self.report["tokens_computed"] if self.report["tokens"] else 1.0

    def taken(self, *phases: str) -> tuple[float, float]:
        """Seconds of some phases together."""
        stock, ours = (sum(side.get(phase, 0.0) for phase in phases) for side in self.seconds)
        return stock, ours

    def ratio(self, *phases: str) -> str:
        """Stock's time over the policy's."""
        stock, ours = self.taken(*phases)
        return f"{stock / ours:.2f}" if ours > 1e-4 else "-"


class TimeUp(Exception):
    """After the turn that warms up, there is not the time for two more."""


def common(out: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "output_dir": out,
        "report_to": "none",
        "use_cpu": device == "cpu",
        "bf16": dtype is torch.bfloat16,
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "gradient_checkpointing": False,
        "learning_rate": 0.0,  # every step is the same step
        "max_steps": 1,
        "dataloader_pin_memory": False,
    }


def spread(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """A reward that differs between rows."""
    return [index % 7 / 7 for index in range(len(completion_ids))]


def _messages(name: str, shape: Shape) -> list[dict[str, Any]]:
    content = [{"type": "image", "image": picture} for picture in shape.pictures(name)]
    return [{"role": "user", "content": [*content, {"type": "text", "text": shape.text}]}]


def _columns(name: str, shape: Shape) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": [{"role": "user", "content": shape.text}]}
    return row | ({"images": shape.pictures(name)} if shape.tiles else {})


def grpo(model: Any, processing: Any, name: str, shape: Shape, options: dict[str, Any]) -> GRPOTrainer:
    config = model.get_base_model().config
    # Stock samples placeholders, too, and fails on them in the update.
    placeholders = [config.image_token_id, getattr(config, "video_token_id", None)]
    return GRPOTrainer(
        model=model,
        processing_class=processing,
        reward_funcs=spread,
        train_dataset=Dataset.from_list([_columns(name, shape)]),
        args=GRPOConfig(
            per_device_train_batch_size=shape.micro or shape.group,
            gradient_accumulation_steps=shape.group // (shape.micro or shape.group),
            num_generations=shape.group,
            max_completion_length=shape.completion,
            generation_kwargs={
                "min_new_tokens": shape.completion,
                "suppress_tokens": [index for index in placeholders if index is not None],
            },
            **options,
        ),
    )


def dpo(model: Any, processing: Any, name: str, shape: Shape, options: dict[str, Any]) -> DPOTrainer:
    # A letter and its blank are a token each in these tokenizers.
    texts = [
        " ".join(itertools.islice(itertools.cycle(letters), shape.completion // 2))
        for letters in ("xy", "zq")
    ]
    answers = {
        key: [{"role": "assistant", "content": text}]
        for key, text in zip(("chosen", "rejected"), texts, strict=True)
    }
    pairs = max(shape.group // 2, 1)
    micro = max((shape.micro or shape.group) // 2, 1)
    return DPOTrainer(
        model=model,
        processing_class=processing,
        train_dataset=Dataset.from_list([_columns(name, shape) | answers] * pairs),
        args=DPOConfig(
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=pairs // micro,
            max_length=None,
            **options,
        ),
    )


TRAINERS = {"grpo": grpo, "dpo": dpo}


def measure(
    name: str,
    shape: Shape,
    repeats: int,
    device: str,
    deadline: float | None = None,
    same_weights: bool = False,
    tensors: bool = False,
) -> Measured:
    """Train stock and policy in turns.

    Args:
        name: One of `SIZES`.
        shape: What a step is.
        repeats: Turns that are timed, besides one that warms up and one that weighs and compares.
        device: "cpu" or "cuda".
        deadline: Time by `time.monotonic()` until which all turns shall be over.
        same_weights: Stock and policy have the very same base weights.
        tensors: Peaks are of the bytes of tensors, which do not depend on what the allocator keeps.

    Raises:
        TimeUp: If the deadline leaves no time for two turns after the first.
    """
    sides = pair(name, shape.tiles, shape.vision == "trained", device, same_weights, shape.vocabulary)
    probes = []
    with tempfile.TemporaryDirectory() as out:
        options = common(out, device, SIZES[name].dtype) | {"gradient_checkpointing": shape.checkpointing}
        options["bf16"] |= shape.autocast
        for model, processing in sides:
            probes.append(Probe(TRAINERS[shape.trainer](model, processing, name, shape, options), processing))
            probes[-1].tensors = tensors
            if shape.spread > 1:
                probes[-1].ends = lengths(shape.group, shape.completion, shape.spread)
        turns: list[list[dict[str, float]]] = [[], []]
        slowest = _timed_turn(probes)  # warms up
        if _too_late(deadline, slowest):
            raise TimeUp(f"a turn takes {slowest:.0f} seconds")
        slowest = 0.0
        for _ in range(repeats):
            slowest = max(slowest, _timed_turn(probes))
            for taken, probe in zip(turns, probes, strict=True):
                taken.append(dict(probe.seconds))
            if _too_late(deadline, slowest):
                break
        # Giving memory back costs time, so this turn is not timed.
        _turn(probes, weigh=True)
    policy = sides[1][0].get_base_model()
    prompt = policy.processing_class.apply_chat_template(
        [_messages(name, shape)], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    stock, ours = (_medians(side) for side in turns)
    peaks = probes[0].peak, probes[1].peak
    tokens = len(prompt["input_ids"][0])
    flops = [update_flops(policy, tokens, shape.completion, shape.group, once) for once in (True, False)]
    return Measured(
        name=name,
        shape=shape,
        prompt=tokens,
        seconds=(stock, ours),
        peaks=peaks,
        differences=_differences(*probes),
        report=policy.sharing_report(),
        turns=len(turns[0]),
        flops=tuple(flops),
    )


def _too_late(deadline: float | None, turn: float) -> bool:
    """Whether two more turns, one of which weighs, may be too many."""
    return deadline is not None and time.monotonic() + 2.2 * turn > deadline


def _timed_turn(probes: list[Probe]) -> float:
    """The seconds of a turn."""
    began = time.monotonic()
    _turn(probes)
    return time.monotonic() - began


def _turn(probes: list[Probe], weigh: bool = False) -> None:
    for side, probe in enumerate(probes):
        probe.weigh = weigh
        # For the comparison the policy gets what stock sampled: rounding may tip a draw.
        probe.replay = probes[0].sampled if weigh and side else None
        _forget(probe)
        probe.trainer.train()


def _forget(probe: Probe) -> None:
    """No step may live on the pixels and features of the one before."""
    model = probe.trainer.accelerator.unwrap_model(probe.trainer.model).get_base_model()
    if isinstance(model, VLMPolicy):
        model.base_model.feature_cache.clear()
        model.processing_class.state.processed.clear()


def _medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {phase: statistics.median(turn.get(phase, 0.0) for turn in turns) for phase in turns[0]}


def _differences(stock: Probe, ours: Probe) -> tuple[float | None, float, float]:
    logits = None
    if stock.logits is not None and ours.logits is not None:
        # Row by row: all of them at once are gigabytes with a large vocabulary.
        pairs = zip(_of_completions(stock), _of_completions(ours), strict=True)
        logits = max(
            float((a.float().log_softmax(-1) - b.float().log_softmax(-1)).abs().max()) for a, b in pairs
        )
    gradients = (stock.gradients - ours.gradients).abs().max() / stock.gradients.abs().max()
    return logits, abs(stock.loss - ours.loss), float(gradients)


def _of_completions(probe: Probe) -> Iterator[torch.Tensor]:
    """The logits of each row that its completion is read from; padding has any."""
    for row, logits in enumerate(probe.logits):
        if probe.real is None:
            yield logits
        else:
            before = logits[:-1]  # each token is read from the one before it
            real = probe.real[row, -len(before) :].bool()
            yield before[-len(real) :][real]


def line(measured: Measured) -> str:
    """The table's line of a shape."""
    shape = measured.shape
    row = [measured.name, shape.trainer, shape.group, shape.tiles, measured.prompt, shape.completion]
    row += [
        f"{shape.spread:.1f}",
        shape.vision,
        shape.settings,
        f"{measured.token_ratio:.2f}",
        *(measured.ratio(phase) for phase in PHASES),
    ]
    row += [f"**{measured.ratio('step')}**", measured.ratio("log-probs", "backward")]
    row += [f"{measured.peaks[0] / measured.peaks[1]:.2f}"]
    row += ["-" if difference is None else f"{difference:.0e}" for difference in measured.differences]
    row += ["{:.2f} -> {:.2f}".format(*measured.taken("step"))]
    row += ["{:.0f} -> {:.0f}".format(*(peak / 1e6 for peak in measured.peaks))]
    return "| " + " | ".join(map(str, row)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = {"model": SIZES, "trainer": TRAINERS, "tiles": [0, *TILING], "vision": ["frozen", "trained"]}
    for name, usual in USUAL.items():
        parser.add_argument(f"--{name}", nargs="+", type=type(usual), choices=choices.get(name))
    parser.add_argument("--checkpointing", action="store_true", help="run layers again in the backward pass")
    parser.add_argument("--vocabulary", type=int, help="words that the model can say; default: 408")
    parser.add_argument("--micro", type=int, help="rows of a forward in training; default: all in one")
    parser.add_argument("--autocast", action="store_true", help="TRL's bf16=True")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    given = vars(parser.parse_args())
    repeats, device = given.pop("repeats"), given.pop("device")
    options = {name: given.pop(name) for name in ("checkpointing", "vocabulary", "micro", "autocast")}
    options = {name: value for name, value in options.items() if value}
    machine = torch.cuda.get_device_name() if device == "cuda" else processor_name()
    print(f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}, TRL {trl.__version__}\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for cell in cells(given, options):
        name = cell.pop("model")
        shape = Shape(**cell)
        print(line(measure(name, shape, repeats, device)), flush=True)


def processor_name() -> str:
    """What this machine's processor calls itself."""
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if "model name" in line), platform.machine())


if __name__ == "__main__":
    main()
