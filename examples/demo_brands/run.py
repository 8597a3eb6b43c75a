"""Brands on photographs: pretrained weights, a warm start on few labels, then stock GRPO with a reward."""

import dataclasses
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from hf_vlm_rl import AdapterCardData, AutoVLMPolicy, save_adapter
from hf_vlm_rl.evaluation import headroom

from .align import align
from .checkpoint import build_checkpoint
from .controls import run_control
from .logos import BRANDS
from .measure import NAME, REWARD, accuracy, answers, change, compared, pass_at, sample
from .packages import LOGOS, PACKAGES, fetch
from .report import curves, draw_answers, draw_confusion, draw_learning_curve, write_figures
from .splits import QUESTION, brand_rows, with_completions
from .stages import DEFAULT, Sizes, Stages
from .tables import controls_table, main_table
from .train import improve, merged, quiet, warm_up


def run(seed: int, steps: int, directory: Path, cache: Path, sizes: Sizes) -> dict:
    """Do everything once; write checkpoints, adapter, card and pictures; return the figures.

    Args:
        seed: Of the projector's first weights, the pictures, and the trainings.
        steps: GRPO optimizer steps.
        directory: Gets `checkpoint`, `warm_start`, `adapter`, `before.json`, `after.json`, `held_out.html`,
            `answers.png` and `confusion.png`.
        cache: Directory of downloads.
        sizes: Of splits and stages.

    Returns:
        Accuracies (shares, 0 to 1), curves and times for `figures.json`.
    """
    stages = Stages()
    with stages.stage("data"):
        logos = fetch(LOGOS, cache)
        labelled = brand_rows(logos, sizes.labelled, "labelled", seed)
        graded = brand_rows(logos, sizes.prompts * steps, "graded", seed)
        selection = brand_rows(logos, sizes.selection, "selection", seed)
    with stages.stage("checkpoint"):
        checkpoint = build_checkpoint(directory / "checkpoint", cache, seed)
        policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    with stages.stage("alignment"):
        align(policy, labelled["image"], labelled["answer"], sizes.alignment_epochs, seed)
    with stages.stage("warm start"):
        told = with_completions(labelled.select(range(sizes.warm_up)))
        trainer = warm_up(policy, told, sizes.warm_up_epochs, seed, directory)
        policy = merged(trainer, directory / "warm_start")

    with stages.stage("headroom"):
        sampled = sample(policy, selection)
        outlook = headroom(sampled)
    print(f"Before GRPO, on {sizes.selection} selection pictures: {outlook}", flush=True)
    with stages.stage("grpo"):
        trainer = improve(policy, graded, REWARD, sizes.prompts, seed, steps, directory)
    # Only now is the held-out split made: nothing above can have looked at it.
    with stages.stage("held out"):
        held_out = brand_rows(logos, sizes.held_out, "held_out", seed)
        with trainer.model.disable_adapter():
            before = accuracy(trainer.model, held_out)
        after = accuracy(trainer.model, held_out)

    before.save(directory / "before.json")
    after.save(directory / "after.json")
    texts = answers(before), answers(after)
    draw_answers(held_out, *texts, directory / "answers.png")
    named = [REWARD.parse_answer(text) for text in texts[1]]
    draw_confusion(BRANDS, named, held_out["answer"], directory / "confusion.png")
    compared(before, after).save_html(directory / "held_out.html")
    save_adapter(trainer, directory / "adapter", card=_card(before, after, sizes))
    return {
        "seed": seed,
        "pictures": {
            "labelled": sizes.labelled,
            "warm_up": sizes.warm_up,
            "graded": len(graded),
            "selection": sizes.selection,
            "held_out": sizes.held_out,
        },
        "before_grpo": {"pass_at": pass_at(sampled), "solved": outlook.solved, "hopeless": outlook.hopeless},
        "held_out": change(before, after),
        "seconds": stages.seconds,
        "curves": curves(trainer.state.log_history),
    }


def _card(before, after, sizes: Sizes) -> AdapterCardData:
    """What the adapter's card says."""
    return AdapterCardData(
        title="Brands on photographs",
        summary=f"Answers which of {len(BRANDS)} brands a picture shows: {', '.join(BRANDS)}.",
        prompt=QUESTION,
        data_notes=(
            "Logos of simple-icons (CC0; logos are trademarks of their owners) drawn on photographs of "
            "scikit-image. GRPO saw no label: its reward says whether an answer was right. The projector "
            f"was aligned on {sizes.labelled} labelled pictures; SFT saw {sizes.warm_up} of them."
        ),
        limits=["A demonstration: it knows no other brand, and never says that it sees none."],
        license="apache-2.0",
        language=["en"],
        evaluations=compared(before, after).evaluations(
            "Pictures with other photographs", metrics={NAME: "accuracy"}
        ),
    )


def stored(path: Path, settings: dict, compute: Callable[[], dict]) -> dict:
    """What a run wrote when it ended, or else compute and write it.

    Args:
        path: JSON file.
        settings: What decides the result besides the seed.
        compute: Returns it.

    Raises:
        ValueError: If the file is of other settings.
    """
    if path.is_file():
        found = json.loads(path.read_text())
        if found["settings"] != settings:
            raise ValueError(
                f"{path} was made with {found['settings']}. Expected {settings}: take another --out, or "
                "remove the folder."
            )
        print(f"{path}: done before", flush=True)
        return found
    result = compute() | {"settings": settings}
    path.write_text(json.dumps(result, indent=2) + "\n")
    return result


def run_seeds(
    seeds: Sequence[int],
    steps: int,
    out: Path,
    threads: int,
    cache: Path,
    controls: Sequence[str] = (),
    sizes: Sizes = DEFAULT,
) -> None:
    """Fetch the packages, run every seed that is not there yet, print and write the figures.

    Args:
        seeds: One run each.
        steps: As for `run`.
        out: Gets a folder `seed-<n>` for each with what `run` writes, the curves and the figures.
        threads: CPU threads of torch.
        cache: Directory of downloads.
        controls: Of `CONTROLS`, those to run for each seed afterwards.
        sizes: Of splits and stages.
    """
    for package in PACKAGES:
        print(f"{package.name} {package.version}: {package.licence}", flush=True)
        fetch(package, cache)
    quiet(threads)
    # Set by TRL's own defaults, whatever a user passes.
    warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing` is deprecated")

    settings = dataclasses.asdict(sizes) | {"steps": steps}
    runs: list[dict] = []
    results: list[dict] = []
    for seed in seeds:
        directory = out / f"seed-{seed}"
        directory.mkdir(parents=True, exist_ok=True)

        def compute(seed=seed, directory=directory) -> dict:
            return run(seed, steps, directory, cache, sizes)

        runs.append(stored(directory / "figures.json", settings, compute))
        write_figures(runs, results, out / "figures.json")
        print(main_table(runs), flush=True)
    draw_learning_curve(runs, out / "learning_curve.png")
    for seed in seeds:
        for name in controls:
            directory = out / f"seed-{seed}"

            def compute(name=name, seed=seed, directory=directory) -> dict:
                return run_control(name, seed, steps, directory, fetch(LOGOS, cache), sizes)

            results.append(stored(directory / f"control-{name}.json", settings, compute))
            write_figures(runs, results, out / "figures.json")
            print(controls_table(results), flush=True)
    print(f"pictures, figures and adapters: {out}")
