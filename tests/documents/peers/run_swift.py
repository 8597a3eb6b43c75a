"""A command of ms-swift, `sft ...` or `rlhf ...`, in its own environment, on a tiny model."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from swift.pipelines.train.rlhf import SwiftRLHF
from swift.pipelines.train.sft import SwiftSft
from swift.template.templates import qwen

from .alike import same_start


def alike(pipeline: type) -> type:
    """A pipeline whose model starts as ours."""

    class Alike(pipeline):  # type: ignore[misc]
        @classmethod
        def prepare_model(cls, *args: Any, **kwargs: Any) -> Any:
            model = super().prepare_model(*args, **kwargs)
            same_start(model)
            return model

    return Alike


def with_the_ids_of(checkpoint: str) -> None:
    """Their templates have the ids of Qwen's tokenizer written in; a tiny checkpoint has others."""
    config = json.loads(Path(checkpoint, "config.json").read_text())
    for template in vars(qwen).values():
        if isinstance(template, type) and getattr(template, "image_token_id", None) is not None:
            template.image_token_id = config["image_token_id"]
            template.video_token_id = config["video_token_id"]


def main() -> None:
    torch.set_num_threads(1)
    kind, *options = sys.argv[1:]
    with_the_ids_of(options[options.index("--model") + 1])
    alike({"sft": SwiftSft, "rlhf": SwiftRLHF}[kind])(options).main()


if __name__ == "__main__":
    main()
