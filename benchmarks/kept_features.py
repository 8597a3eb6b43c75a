"""What it buys to keep a frozen tower's features from one forward of a training step to the next.

`python -m benchmarks.kept_features` trains stock GRPO on one policy, with its features kept and not, in
turns. The tower has as large a share of the model as InternVL3-1B's (300M parameters, 360M in the decoder's
layers).
"""

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from .models import image, pair
from .sizes import SIZES, Size
from .trainers import QUESTION, common, processor_name, spread

# Rows of a forward, passes over a batch of rollouts, weight of the KL term (above 0: a reference model).
SETTINGS = {
    "TRL's defaults, the group in one forward": (8, 1, 0.0),
    "the group in four forwards": (2, 1, 0.0),
    "two passes and a reference model": (8, 2, 0.04),
    "two passes and a reference model, the group in four forwards": (2, 2, 0.04),
}
GROUP = 8


def trainer_of(
    model: Any, processing: Any, pictures: list[Any], completion: int, setting: tuple, out: str
) -> GRPOTrainer:
    """A trainer whose `train` is one batch of rollouts and all updates on it."""
    rows, passes, beta = setting
    content = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": QUESTION}]
    options = common(out, "cpu", torch.float32) | {"max_steps": passes}
    return GRPOTrainer(
        model=model,
        processing_class=processing,
        reward_funcs=spread,
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": content}], "images": pictures}]
        ),
        args=GRPOConfig(
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=GROUP // rows,
            num_generations=GROUP,
            num_iterations=passes,
            beta=beta,
            max_completion_length=completion,
            generation_kwargs={"min_new_tokens": completion},
            **options,
        ),
    )


def seconds(trainer: GRPOTrainer, backbone: Any, limit: int) -> tuple[float, int]:
    """Processor time of a `train` with so many bytes of features kept, and the images that were encoded."""
    cache = backbone.feature_cache
    cache.limit_bytes, encoded = limit, cache.encoded
    cache.clear()
    began = time.process_time()
    trainer.train()
    return time.process_time() - began, cache.encoded - encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiles", type=int, nargs="+", default=[1, 7])
    parser.add_argument("--completion", type=int, default=64)
    given = parser.parse_args()
    small = SIZES["internvl"]
    vision = {"hidden_size": 448, "intermediate_size": 1792, "num_hidden_layers": 8, "num_attention_heads": 7}
    SIZES["kept"] = Size("internvl", small.text, vision | {"image_size": [448, 448]}, 448)
    print(f"{processor_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    print("| tiles | setting | images encoded, not kept | kept | seconds, not kept | kept | ratio |")
    print("|---|---|---|---|---|---|---|")
    for tiles in given.tiles:
        for name, setting in SETTINGS.items():
            _, (model, processing) = pair("kept", tiles, False, "cpu")
            backbone = model.get_base_model().base_model
            limit = backbone.feature_cache.limit_bytes
            with tempfile.TemporaryDirectory() as out:
                pictures = image("kept", tiles)
                trainer = trainer_of(model, processing, pictures, given.completion, setting, out)
                # The first turn warms up.
                turns = [
                    [seconds(trainer, backbone, most) for most in (0, limit)]
                    for _ in range(given.repeats + 1)
                ][1:]
            plain, kept = (statistics.median(turn[side][0] for turn in turns) for side in (0, 1))
            encoded = " | ".join(str(images) for _, images in turns[0])
            print(
                f"| {tiles} | {name} | {encoded} | {plain:.2f} | {kept:.2f} | {plain / kept:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
