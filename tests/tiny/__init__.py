"""Tiny random checkpoints of every class that can be built: the package's twelve, and others by outline."""

from pathlib import Path

from hf_vlm_rl.families import tiny
from hf_vlm_rl.families.tiny.checkpoint import write_recipe
from hf_vlm_rl.families.tiny.recipes import Recipe

from .every import OUTLINES, outlined

EVERY: tuple[str, ...] = (*tiny.FAMILIES, *OUTLINES)
# Those of which no policy can be made, and why.
WITHOUT_POLICY: dict[str, str] = {
    name: outline.no_policy for name, outline in OUTLINES.items() if outline.no_policy
}


def recipe(model_type: str) -> Recipe:
    """The configuration and processor of the tiny checkpoint of `model_type`, one of `EVERY`."""
    return tiny.recipe(model_type) if model_type in tiny.FAMILIES else outlined(model_type)


def write_checkpoint(model_type: str, directory: str | Path, seed: int = 0) -> Path:
    """Write the tiny checkpoint of `model_type`, one of `EVERY`; returns its directory."""
    return write_recipe(recipe(model_type), directory, seed)
