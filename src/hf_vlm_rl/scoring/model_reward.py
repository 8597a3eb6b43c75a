"""`ModelReward`: a trained reward model as a reward function, which sees the row's images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..policy.eval_mode import evaluating
from ..processing.conversation import fill_images, normalize
from ..rewards.base import Reward
from ..rewards.columns import read_images
from .head import VLMScored


@dataclass(frozen=True)
class ModelReward(Reward):
    """What a reward model says of completions, without gradients; GRPO alone would give it no images.

    ```python
    model = AutoVLMRewardModel.from_pretrained("reward-model", processing_class=policy.processing_class)
    trainer = GRPOTrainer(model=policy, reward_funcs=[ModelReward(model), format_reward], ...)
    ```

    Range: all numbers. Scores that are not finite become None and are counted as `<name>/failed` in the log.

    Args:
        model: An `AutoVLMRewardModel`, or a `PeftModel` around one; it stays on its device.
        batch_size: The most conversations in one forward.

    Raises:
        ValueError: If the model is another, gives several scores, or `batch_size` is below 1.
    """

    model: Any = field(repr=False)
    batch_size: int = 8

    def __post_init__(self) -> None:
        scored = any(isinstance(module, VLMScored) for module in self.model.modules())
        if not scored or self.model.config.num_labels != 1 or self.batch_size < 1:
            raise ValueError(
                f"Got a {type(self.model).__name__} and batch_size={self.batch_size}. Expected an "
                "AutoVLMRewardModel with one score, and 1 or more."
            )

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One score per completion.

        Args:
            completions: Strings, or lists of messages.
            **columns: `prompts` (strings or messages), and `images` or `image` unless blocks of the prompts
                hold the images.

        Raises:
            ColumnError: If the prompts or images are not a list with an entry for each completion.
            ImageError: If an image is unusable, or images and image blocks differ in number.
        """
        count = len(completions)
        prompts = self.read(columns, "prompts", count, lambda prompt: prompt)
        images = read_images(columns, count, self.__name__)
        rows = list(zip(prompts, completions, images or [[]] * count, strict=True))
        scores: list[float] = []
        with torch.no_grad(), evaluating(self.model):
            for start in range(0, count, self.batch_size):
                inputs = self._encoded(rows[start : start + self.batch_size]).to(self.model.device)
                scores += self.model(**inputs, use_cache=False).logits[:, 0].tolist()
        if scores and callable(log := columns.get("log_metric")):
            log(f"{self.__name__}/failed", sum(not math.isfinite(score) for score in scores) / count)
        return [score if math.isfinite(score) else None for score in scores]

    def _encoded(self, rows: Sequence[tuple[Any, Any, list]]) -> Any:
        processing = self.model.processing_class
        padding = {"padding": True, "padding_side": "left"}
        if isinstance(rows[0][0], str):
            texts, images = [prompt + completion for prompt, completion, _ in rows], [own for *_, own in rows]
            pictures = images if any(images) else None
            return processing(text=texts, images=pictures, return_tensors="pt", **padding)
        options = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "processor_kwargs": padding}
        prompts = [_filled(prompt, images) for prompt, _, images in rows]
        chats = [[*prompt, *_answer(row[1])] for prompt, row in zip(prompts, rows, strict=True)]
        inputs = processing.apply_chat_template(chats, add_generation_prompt=False, **options)
        if self.model.family.prefix_attention and "pixel_values" in inputs:
            # Beside its images stands where a prompt ends, from which tokens no longer see what follows.
            prompted = processing.apply_chat_template(prompts, add_generation_prompt=True, **options)
            inputs["pixel_values"] = prompted["pixel_values"]
        return inputs


def _filled(prompt: list, images: list) -> list[dict]:
    """A prompt with its images; those in blocks are the same as the column's, where there are both."""
    blocks = [block for message in normalize(prompt)[0][0] for block in message.get("content") or []]
    return fill_images(prompt, None if any(block.keys() & {"image", "video"} for block in blocks) else images)


def _answer(completion: Any) -> list[dict]:
    return [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
