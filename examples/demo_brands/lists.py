"""The first task with the list of names in the prompt: 16, 100 or 1,000 of which the answer is one.

`python -m examples.demo_brands.lists --start brands_out/seed-0/warm_start` takes the warm start of a run of
`hf-vlm-rl demo brands`, which has never seen a list, shows it lists by SFT, and goes on with stock GRPO.
The list comes before the picture and is the same for all pictures, so the policy computes it once a step.
"""

from pathlib import Path

import datasets

from hf_vlm_rl.evaluation import EvaluationResult
from hf_vlm_rl.rewards import ChoiceReward

from .logos import BRANDS, other_titles
from .measure import NAME, accuracy, change
from .packages import LOGOS, fetch
from .report import curves
from .splits import brand_rows, with_completions
from .stages import DEFAULT, Stages
from .task import arguments, in_words, run_task, taught

ORDER = "Answer with one of these names: {names}."
ASKED = (16, 100, 1000)  # names of the lists that are measured
BATCH = 40  # pictures of a batch of the measurement: each has its own copy of the keys and values of the list


def names(folder: Path, number: int) -> list[str]:
    """The brands and other titles of simple-icons, in alphabetical order.

    Args:
        folder: The unpacked package of logos.
        number: Of all names, at least that of the brands.
    """
    others = other_titles(folder, number - len(BRANDS), seed=0)
    return sorted([*BRANDS, *others], key=str.casefold)


def with_list(rows: datasets.Dataset, listed: list[str]) -> datasets.Dataset:
    """The rows of `brand_rows` with a system message that lists the names."""
    order = {"role": "system", "content": ORDER.format(names=", ".join(listed))}
    prompts = [[order, *messages] for messages in rows["prompt"]]
    return rows.remove_columns("prompt").add_column("prompt", prompts)


def named(model, rows: datasets.Dataset, listed: list[str]) -> EvaluationResult:
    """Greedy answers to all rows with this list, and the share that is right."""
    return accuracy(model, with_list(rows, listed), ChoiceReward(listed), BATCH)


def run(
    start: Path,
    out: Path,
    cache: Path,
    seed: int,
    labelled: int,
    steps: int,
    held_out: int,
    listed: int,
    asked: tuple[int, ...],
) -> dict:
    """SFT and GRPO with lists of one length, and the measurement with each length.

    Args:
        start: The warm start of a run of the first task.
        out: Gets checkpoints and adapters.
        cache: Directory of downloads.
        seed: Of pictures and trainings.
        labelled: Pictures whose brand SFT is told, in two passes.
        steps: GRPO steps of 16 pictures, which come once.
        held_out: Pictures of the measurement.
        listed: Names of the list in training.
        asked: Names of the lists of the measurement.
    """
    stages, logos = Stages(), fetch(LOGOS, cache)
    trained = names(logos, listed)
    told = with_list(with_completions(brand_rows(logos, labelled, "labelled", seed)), trained)
    graded = with_list(brand_rows(logos, DEFAULT.prompts * steps, "graded", seed), trained)
    trainer = taught(start, told, graded, ChoiceReward(trained), seed, steps, out, stages)
    rows = brand_rows(logos, held_out, "held_out", seed)
    figures = {}
    for number in asked:
        with stages.stage(f"held out, {number} names"):
            with trainer.model.disable_adapter():
                before = named(trainer.model, rows, names(logos, number))
            after = named(trainer.model, rows, names(logos, number))
        before.save(out / f"before-{number}.json")
        after.save(out / f"after-{number}.json")
        figures[str(number)] = change(before, after, NAME)
    return {
        "listed": listed,
        "asked": figures,
        "report": trainer.accelerator.unwrap_model(trainer.model).get_base_model().sharing_report(),
        "seconds": stages.seconds,
        "curves": curves(trainer.state.log_history),
    }


def main() -> None:
    """Parse the command line, run, print and write the figures."""
    parser = arguments(__doc__, Path("outputs/lists"), labelled=160)
    parser.add_argument("--listed", type=int, default=100, help="names of the list in training")
    parser.add_argument(
        "--asked", type=int, nargs="+", default=ASKED, help="names of the lists of the measurement"
    )
    figures = run_task(parser, run)
    for number, changed in figures["asked"].items():
        print(f"{number:>5} names: {in_words(changed)}")


if __name__ == "__main__":
    main()
