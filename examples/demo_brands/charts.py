"""A further task on the same weights: what kind of chart is this?

`python -m examples.demo_brands.charts` needs no run of the first task. The projector learns the names of
kinds, SFT sees half of the same charts, and stock GRPO goes on with others, of which a reward tells only
whether an answer was right. `--controls` train on GRPO's charts in its place.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import datasets
import numpy as np

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.rewards import ChoiceReward

from .align import align
from .checkpoint import build_checkpoint
from .controls import more_sft, ppo
from .measure import accuracy, answers, change
from .plots import KINDS, chart
from .report import curves, draw_answers
from .splits import STREAMS, with_completions
from .stages import DEFAULT, Stages
from .task import arguments, in_words, run_task, taught

QUESTION = "What kind of chart is this?"
ANSWERS = list(KINDS)
RIGHT = ChoiceReward(ANSWERS)
TEMPERATURE = 1.0
CONTROLS = {"sft": more_sft, "ppo": partial(ppo, reward=RIGHT, temperature=TEMPERATURE)}


def chart_rows(number: int, stream: str, seed: int) -> datasets.Dataset:
    """Rows of the task: `prompt` (messages), `image` (PIL), `answer` (a kind, each as often as the others).

    Args:
        number: Rows.
        stream: As for `splits.brand_rows`: each has its own charts.
        seed: Of all streams.
    """
    rng = np.random.default_rng([seed, STREAMS.index(stream)])
    kinds = [ANSWERS[index % len(ANSWERS)] for index in rng.permutation(number)]
    columns = {
        "prompt": [[{"role": "user", "content": QUESTION}]] * number,
        "image": [chart(kind, rng) for kind in kinds],
        "answer": kinds,
    }
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def aligned(told: datasets.Dataset, cache: Path, seed: int, out: Path) -> Path:
    """A checkpoint in `out` whose projector has learned the names of the charts of `told`."""
    checkpoint = build_checkpoint(out / "checkpoint", cache, seed)
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    align(policy, told["image"], told["answer"], DEFAULT.alignment_epochs, seed)
    policy.save_pretrained(out / "aligned")
    policy.processing_class.save_pretrained(out / "aligned")
    return out / "aligned"


def run(
    out: Path,
    cache: Path,
    seed: int,
    labelled: int,
    steps: int,
    held_out: int,
    controls: Sequence[str] = (),
) -> dict:
    """Alignment, SFT, GRPO and its controls, all measured on the same charts.

    Args:
        out: Gets checkpoints, the adapter, evaluations and `answers.png`.
        cache: Directory of downloads.
        seed: Of the projector's first weights, the charts, and the trainings.
        labelled: Charts that the alignment is told about; SFT sees the first half of them, in two passes.
        steps: GRPO steps of 16 charts, which come once.
        held_out: Charts of the measurement.
        controls: Of `CONTROLS`, those to run.
    """
    stages = Stages()
    told = chart_rows(labelled, "labelled", seed)
    graded = chart_rows(DEFAULT.prompts * steps, "graded", seed)
    with stages.stage("alignment"):
        start = aligned(told, cache, seed, out)
    told = with_completions(told.select(range(labelled // 2)))
    trainer = taught(start, told, graded, RIGHT, seed, steps, out, stages, temperature=TEMPERATURE)
    trainer.save_model(out / "adapter")
    rows = chart_rows(held_out, "held_out", seed)
    with trainer.model.disable_adapter():
        results = {"before": accuracy(trainer.model, rows, RIGHT)}
    results["grpo"] = accuracy(trainer.model, rows, RIGHT)
    draw_answers(rows, *map(answers, results.values()), out / "answers.png")
    results["before"].save(out / "before.json")
    results["grpo"].save(out / "grpo.json")
    for name in controls:
        policy = AutoVLMPolicy.from_pretrained(out / "warm_start", dtype="float32")
        with stages.stage(name):
            trained = CONTROLS[name](policy, graded, DEFAULT, seed, out)
        results[name] = accuracy(trained.model, rows, RIGHT)
        results[name].save(out / f"{name}.json")
    return {
        "held_out": {name: change(results["before"], results[name]) for name in ("grpo", *controls)},
        "seconds": stages.seconds,
        "curves": curves(trainer.state.log_history),
    }


def main() -> None:
    """Parse the command line, run, print and write the figures."""
    parser = arguments(__doc__, Path("outputs/charts"), labelled=320, start=False)
    parser.add_argument(
        "--controls", nargs="*", default=[], choices=CONTROLS, help="what to train in place of GRPO"
    )
    figures = run_task(parser, run)
    for name, changed in figures["held_out"].items():
        print(f"{name:5} {in_words(changed)}")


if __name__ == "__main__":
    main()
