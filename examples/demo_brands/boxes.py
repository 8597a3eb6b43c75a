"""A second task on the same weights: where on the photograph is the logo?

`python -m examples.demo_brands.boxes --start brands_out/seed-0/warm_start` takes the warm start of a run of
`hf-vlm-rl demo brands`, which names brands alone, shows it boxes by SFT, and goes on with stock GRPO and
`IoUReward`. Plates are smaller than in the first task.
"""

import json
from pathlib import Path

import datasets
import numpy as np

from hf_vlm_rl import BoxCoordinates
from hf_vlm_rl.evaluation import EvaluationResult, evaluate
from hf_vlm_rl.rewards import IoUReward

from .logos import BRANDS, logo
from .measure import BATCH, change
from .packages import LOGOS, fetch
from .pictures import IMAGE_SIZE, boxed_picture
from .report import curves
from .splits import STREAMS, photographs
from .stages import DEFAULT, Stages
from .task import arguments, in_words, run_task, taught

QUESTION = "Where is the {brand} logo?"
PLATES = (0.3, 0.6)  # sides, as shares of the image's
COORDINATES = BoxCoordinates.relative(100)
LONGEST = 20  # tokens of [12, 34, 56, 78], and some more
OVERLAP = IoUReward(coordinates=COORDINATES)
FOUND = IoUReward(coordinates=COORDINATES, threshold=0.5)


def mean_iou(completions: list, **columns) -> list[float]:
    """The overlap itself, under a name of its own beside that of the share found."""
    return OVERLAP(completions, **columns)


def box_rows(folder: Path, number: int, stream: str, seed: int) -> datasets.Dataset:
    """Rows of the task: `prompt`, `image`, `box` in pixels, `image_size`, and the right `completion`.

    Args:
        folder: The unpacked package of logos.
        number: Rows.
        stream: As for `splits.brand_rows`; pictures differ from those of the first task.
        seed: Of all streams.
    """
    rng = np.random.default_rng([seed, len(STREAMS) + STREAMS.index(stream)])
    size = (IMAGE_SIZE, IMAGE_SIZE)
    rows = []
    for index in rng.permutation(number):
        brand = BRANDS[index % len(BRANDS)]
        image, box = boxed_picture(logo(folder, brand), photographs(stream), rng, PLATES)
        asked = [{"role": "user", "content": QUESTION.format(brand=brand)}]
        answer = json.dumps(COORDINATES.to_model(box, size))
        told = [{"role": "assistant", "content": answer}]
        row = {"prompt": asked, "image": image, "box": box, "image_size": list(size), "completion": told}
        rows.append(row)
    return datasets.Dataset.from_list(rows).cast_column("image", datasets.Image())


def located(model, rows: datasets.Dataset) -> EvaluationResult:
    """Greedy boxes for all rows: the share whose IoU is 0.5 or more, and the mean IoU."""
    rewards = [FOUND, mean_iou]
    return evaluate(model, rows, rewards, batch_size=BATCH, max_new_tokens=LONGEST, keep_rows=len(rows))


def run(start: Path, out: Path, cache: Path, seed: int, labelled: int, steps: int, held_out: int) -> dict:
    """SFT on boxes, GRPO on pictures without, and the measurement on held-out photographs.

    Args:
        start: A checkpoint whose projector speaks the decoder's language.
        out: Gets checkpoints and adapters.
        cache: Directory of downloads.
        seed: Of pictures and trainings.
        labelled: Pictures whose box SFT is told, in two passes.
        steps: GRPO steps of 16 pictures, which come once.
        held_out: Pictures of the measurement.
    """
    stages, logos = Stages(), fetch(LOGOS, cache)
    told = box_rows(logos, labelled, "labelled", seed)
    graded = box_rows(logos, DEFAULT.prompts * steps, "graded", seed).remove_columns("completion")
    more = {"max_completion_length": LONGEST}
    trainer = taught(start, told, graded, OVERLAP, seed, steps, out, stages, **more)
    with stages.stage("held out"):
        rows = box_rows(logos, held_out, "held_out", seed).remove_columns("completion")
        with trainer.model.disable_adapter():
            before = located(trainer.model, rows)
        after = located(trainer.model, rows)
    before.save(out / "before.json")
    after.save(out / "after.json")
    return {
        "found": change(before, after, FOUND.__name__),
        "iou": change(before, after, mean_iou.__name__),
        "seconds": stages.seconds,
        "curves": curves(trainer.state.log_history),
    }


def main() -> None:
    """Parse the command line, run, print and write the figures."""
    figures = run_task(arguments(__doc__, Path("outputs/boxes"), labelled=640), run)
    for name in ("found", "iou"):
        print(f"{name:6} {in_words(figures[name])}")


if __name__ == "__main__":
    main()
