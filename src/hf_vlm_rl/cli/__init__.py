"""The `hf-vlm-rl` command: questions from a shell, a file each."""

from .commands import main

__all__ = ["main"]
