"""Options of single images, told to vLLM with the prompts that the images belong to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..processing.images.options import noted_options
from .prompts import EnginePrompt


def check_one_set(rows: Sequence[EnginePrompt], colocated: bool) -> None:
    """Refuse options that vLLM cannot be told.

    Args:
        rows: B prompts.
        colocated: vLLM runs in this process.

    Raises:
        ValueError: If images of one prompt have different options, or those of a server's prompt have any.
            The message names the row.
    """
    for row, prompt in enumerate(rows):
        options = [noted_options(image) for image in prompt.images]
        if any(each != options[0] for each in options):
            raise ValueError(
                f"Row {row}: its images have the options {options}. vLLM takes one set for all images of a "
                "prompt; give them the same, or set use_vllm=False."
            )
        if options and options[0] and not colocated:
            raise ValueError(
                f"Row {row}: its images have the options {options[0]}, and TRL's client tells a vLLM server "
                "none. Expected vllm_mode='colocate', or images without options of their own."
            )


@contextmanager
def told_per_prompt(engine: Any) -> Iterator[None]:
    """Let TRL's `VLLMGeneration` tell vLLM each prompt's image options, for the length of a block."""
    llm = engine.llm
    engine.llm = _Telling(llm)
    try:
        yield
    finally:
        engine.llm = llm


class _Telling:
    """Stands for vLLM's `LLM` and adds the options noted on images to the prompts they belong to."""

    def __init__(self, llm: Any):
        self._llm = llm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def generate(self, prompts: Sequence[Mapping[str, Any]], *args: Any, **kwargs: Any) -> Any:
        return self._llm.generate([_told(prompt) for prompt in prompts], *args, **kwargs)


def _told(prompt: Mapping[str, Any]) -> dict[str, Any]:
    images = (prompt.get("multi_modal_data") or {}).get("image")
    first = images[0] if isinstance(images, list) else images
    options = noted_options(first) if first is not None else {}
    return {**prompt, "mm_processor_kwargs": options} if options else dict(prompt)
