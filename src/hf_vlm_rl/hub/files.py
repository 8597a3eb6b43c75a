"""Which files of a folder belong to an adapter."""

from pathlib import Path

from ..loading.adapters.files import (
    CONFIG,
    PICKLED,
    PROCESSOR,
    PROCESSOR_CONFIGS,
    WEIGHTS,
    read_config,
    read_shapes,
)
from .cards.render import CURVE
from .cards.stored import FILE as STORED
from .contents import refuse_link

CARD = "README.md"
ARGUMENTS = "training_args.json"
RESULTS = ".eval_results"
ADAPTER = (CONFIG, WEIGHTS, CARD, ARGUMENTS, CURVE, f"{RESULTS}/*.yaml")


def pushable(folder: Path) -> list[Path]:
    """The files of an adapter: known names only, so that nothing else in the folder is published.

    Raises:
        ValueError: If there is no adapter in it, if it is damaged or its weights are pickled, if the
            processor is missing, or if a file is a link.
    """
    if not folder.is_dir():
        raise ValueError(f"Got {str(folder)!r}, which is no folder. Expected one with an adapter.")
    if (folder / PICKLED).is_file() and not (folder / WEIGHTS).is_file():
        raise ValueError(
            f"{folder / PICKLED} is a pickle, which runs code when it is loaded, and is not pushed. "
            f"Expected {WEIGHTS}: load the adapter with PEFT and save it again."
        )
    for name in (WEIGHTS, CONFIG):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}. Expected a folder as save_adapter writes it.")
    read_config(folder)
    read_shapes(folder)
    if not any((folder / name).is_file() for name in PROCESSOR_CONFIGS):
        raise ValueError(
            f"{folder} has no {' or '.join(PROCESSOR_CONFIGS)}. Expected the native "
            "processor beside the adapter: processing_class.save_pretrained(folder), then push again."
        )
    files = sorted(path for pattern in (*PROCESSOR, *ADAPTER) for path in folder.glob(pattern))
    for path in (*files, folder / STORED):  # a push writes card and config: not through a link
        refuse_link(path, folder)
    return files
