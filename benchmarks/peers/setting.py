"""What is trained, in words that every environment can read: no import beyond the standard library."""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0}
GROUP = 8


@dataclass(frozen=True)
class Setting:
    """A run of GRPO with `GROUP` completions of one prompt in a step, and another image in each step.

    Attributes:
        folder: Of the checkpoint and the rows, written by `checkpoint.py`.
        completion: Tokens of each completion.
        micro: Rows of a forward in training; the others are accumulated.
        checkpointing: Whether layers are run again in the backward pass.
        steps: Of training; the first one warms up and is not counted.
    """

    folder: str
    completion: int = 32
    micro: int = GROUP
    checkpointing: bool = True
    steps: int = 3

    @property
    def checkpoint(self) -> str:
        """The folder of weights and processor."""
        return f"{self.folder}/model"

    @property
    def rows(self) -> str:
        """The file of rows, as JSON lines: messages with "<image>", and paths of images."""
        return f"{self.folder}/rows.jsonl"

    @property
    def never(self) -> list[int]:
        """Ids of placeholders, which an untrained model would sample now and then."""
        config = json.loads(Path(self.checkpoint, "config.json").read_text())
        return [config[name] for name in ("image_token_id", "video_token_id") if config.get(name) is not None]

    def told(self) -> str:
        """The setting as an argument of a command."""
        return json.dumps(asdict(self))


def asked() -> tuple[str, Setting, str]:
    """The command line of a runner: the name of its side, the setting, and the file that it writes."""
    parser = argparse.ArgumentParser()
    for name in ("side", "setting", "out"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    return given.side, Setting(**json.loads(given.setting)), given.out
