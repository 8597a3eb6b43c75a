"""Write the tables of docs/recipes.md: what `hf-vlm-rl plan` gives for each task and GPU.

Run `python docs/make_recipes.py`, which takes some minutes; `make docs` leaves it out. A test plans one cell
of the table anew.
"""

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "recipes.md"
GPUS = (24, 48, 80, 141)  # GB, as vendors count
# Width and height of an image in pixels, and the longest completion in tokens.
TASKS = {
    "a name from a list": ((448, 448), 32),
    "boxes, counting, VQA": ((640, 480), 256),
    "OCR of a page": ((1024, 1448), 512),
    "maths with images": ((640, 480), 1024),
}
# In `benchmarks/sizes.py`, and how many tiles an image has at most.
MODELS = {"qwen2_5_vl-3b": ("Qwen2.5-VL-3B", 16), "internvl-8b": ("InternVL2.5-8B", 13)}
SMALL = {"bf16": "with bfloat16", "fp32": "without (T4)"}


@functools.cache
def _checkpoint(name: str, tiles: int):
    from benchmarks.models import sized
    from benchmarks.sizes import SIZES
    from hf_vlm_rl.loading.checkpoint import Checkpoint

    return Checkpoint(name, *sized(SIZES[name], tiles))


@functools.cache
def _needed(name: str, tiles: int, run, settings):
    from hf_vlm_rl.plan.memory import estimate

    return estimate(_checkpoint(name, tiles), run, settings)


def cell(
    name: str,
    tiles: int,
    image: tuple[int, int],
    completion: int,
    gpu: int,
    precisions: Sequence[str] | None = None,
) -> str:
    """The settings that fit a GPU, as `hf-vlm-rl plan` finds them."""
    from hf_vlm_rl.plan.settings import Run, candidates

    run = Run(image=image, completion=completion)
    for settings in candidates(run, precisions):
        needed = _needed(name, tiles, run, settings).total
        if needed <= gpu << 30:
            break
    else:
        return "nothing fits"
    words = [settings.precision]
    words += ["checkpointing"] if settings.checkpointing else []
    words += [f"{settings.rows} x {settings.accumulation} rows"] if settings.accumulation > 1 else []
    words += [f"G={settings.group}"] if settings.group != run.group else []
    return f"{', '.join(words)}: {needed / (1 << 30):.0f}"


def settings_table() -> str:
    """A line for each model and task."""
    lines = [
        f"| model | task | image | completion | {' | '.join(f'{gpu} GB' for gpu in GPUS)} |\n",
        "|---|---|---|---|" + "---|" * len(GPUS) + "\n",
    ]
    for name, (title, tiles) in MODELS.items():
        for task, (image, completion) in TASKS.items():
            cells = [cell(name, tiles, image, completion, gpu) for gpu in GPUS]
            size = f"{image[0]} x {image[1]}"
            lines.append(f"| {title} | {task} | {size} | {completion} | {' | '.join(cells)} |\n")
    return "".join(lines)


def small_table() -> str:
    """Lines for a GPU of 16 GB, one for each precision."""
    lines = ["| model | GPU | settings: GiB |\n|---|---|---|\n"]
    for precision, gpu in SMALL.items():
        found = cell("internvl-1b", 1, (448, 448), 32, 16, (precision,))
        lines.append(f"| InternVL3-1B, `max_tiles=1`, completions of 32 | 16 GB, {gpu} | {found} |\n")
    return "".join(lines)


def page() -> str:
    """The text of docs/recipes.md."""
    text = PAGE.read_text()
    for name, table in {"settings": settings_table(), "small": small_table()}.items():
        mark = rf"(<!-- {name}: written by docs/make_recipes.py -->\n\n).*?(\n<!-- end -->)"
        text = re.sub(mark, lambda found, table=table: found[1] + table + found[2], text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
