"""What trainers log to: numbers for every reporter, completions with images where these can show them."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
from transformers.integrations import TensorBoardCallback, WandbCallback

from ..processing.images.formats import open_image
from .kept_rows import EvaluatedRow
from .result import EvaluationResult

IMAGES = 16  # shown by TensorBoard


def metrics(result: EvaluationResult) -> dict[str, float]:
    """The numbers of a result by name: `<reward>/mean`, `<reward>/low`, ..., `clipped`, `mean_length`."""
    numbers: dict[str, float] = {}
    for name, scores in result.rewards.items():
        if not scores.mean.n:
            continue
        numbers[f"{name}/mean"] = scores.mean.value
        if scores.mean.interval is not None:
            numbers[f"{name}/low"], numbers[f"{name}/high"] = scores.mean.interval
        numbers |= {f"{name}/pass@{k}": share.value for k, share in scores.pass_at.items() if share.n}
    return numbers | {"clipped": result.clipped, "mean_length": result.mean_length}


def log_metrics(result: EvaluationResult, args: Any, state: Any, control: Any, handler: Any) -> None:
    """Into `state.log_history`, and to the callbacks of `handler` unless it is None."""
    numbers = metrics(result)
    epoch = {} if state.epoch is None else {"epoch": state.epoch}
    entry = {f"eval/{name}": value for name, value in numbers.items()}
    state.log_history.append(entry | epoch | {"step": state.global_step})
    if handler is None:
        return
    # Reporters turn eval_ into eval/. The trainer's own log of this step still comes: `on_log` would call
    # it off.
    should_log = control.should_log
    handler.on_log(args, state, control, {f"eval_{name}": value for name, value in numbers.items()} | epoch)
    control.should_log = should_log


def log_completions(result: EvaluationResult, step: int, callbacks: Sequence[Any]) -> None:
    """The kept rows, to those of a trainer's callbacks that show images."""
    for callback in callbacks:
        if isinstance(callback, WandbCallback):
            _to_wandb(result, step)
        elif isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
            _to_tensorboard(result, step, callback.tb_writer)


def _to_wandb(result: EvaluationResult, step: int) -> None:
    import wandb

    # A cell shows one image: as many columns as a row has images.
    most = max((len(row.images) for row in result.rows), default=0)
    columns = [f"image_{number}" for number in range(most)]
    table = wandb.Table(columns=["step", "row", *columns, "prompt", "completion", *result.rewards])
    for row in result.rows:
        images = [wandb.Image(_image(url)) for url in row.images] + [None] * (most - len(row.images))
        for nth, completion in enumerate(row.completions):
            rewards = [row.rewards[name][nth] for name in result.rewards]
            table.add_data(step, row.index, *images, row.prompt, completion, *rewards)
    wandb.log({"eval/completions": table, "train/global_step": step})


def _to_tensorboard(result: EvaluationResult, step: int, writer: Any) -> None:
    for row in result.rows[:IMAGES]:
        for number, url in enumerate(row.images):
            name = f"eval/row_{row.index}/image_{number}"
            writer.add_image(name, np.asarray(_image(url)), step, dataformats="HWC")
        writer.add_text(f"eval/row_{row.index}", _markdown(row), step)
    writer.flush()


def _markdown(row: EvaluatedRow) -> str:
    """As an indented block: TensorBoard renders Markdown, which this is not."""
    lines = [row.prompt]
    for nth, completion in enumerate(row.completions):
        rewards = ", ".join(f"{name} {values[nth]}" for name, values in row.rewards.items())
        lines += [f"--- {rewards}", completion]
    return "\n".join(f"    {line}" for line in "\n".join(lines).splitlines())


def _image(url: str) -> PIL.Image.Image:
    return open_image(io.BytesIO(base64.b64decode(url.partition(",")[2])))
