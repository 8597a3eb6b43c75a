"""An adapter repository or directory: its files, and the base model that it names."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import snapshot_download
from transformers.utils import cached_file, logging
from transformers.utils.peft_utils import find_adapter_config_file

from ...errors import CheckpointError
from ..location import HUB_ID, check_location, elsewhere, file_arguments
from .config import largest_rank, load_config
from .files import CONFIG, PICKLED, PROCESSOR, PROCESSOR_CONFIGS, WEIGHTS, read_shapes

if TYPE_CHECKING:
    from peft import PeftConfig

logger = logging.get_logger(__name__)

DOWNLOAD_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")


@dataclass(frozen=True)
class Adapter:
    """Where an adapter's files are, and its config; nothing of it is on a model yet.

    Attributes:
        source: Hub id or directory, as the caller wrote it.
        hub: `HUB_ARGUMENTS` for it.
        config: The content of adapter_config.json.
        directory: Where its files are, downloaded if need be.
    """

    source: str
    hub: Mapping[str, Any]
    config: "PeftConfig"
    directory: Path

    def base(
        self, base_model: str | os.PathLike | None = None, base_revision: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Where the base model is: what the adapter names, unless the caller names another.

        Returns:
            Hub id or directory, and Hub arguments for it.

        Raises:
            CheckpointError: If the adapter names no base, or a directory that does not exist.
        """
        recorded = self.config.base_model_name_or_path
        base = os.fspath(base_model) if base_model is not None else self._recorded_base(recorded)
        if base_revision is None and base == recorded:
            base_revision = self.config.revision
        hub = elsewhere(self.hub)
        return base, hub if base_revision is None else hub | {"revision": base_revision}

    def processor(self) -> tuple[str, Mapping[str, Any]] | None:
        """Source and Hub arguments of the processor that was saved with the adapter, if one was."""
        if all(self._find(name) is None for name in PROCESSOR_CONFIGS):
            return None
        folder = self.hub.get("subfolder")
        if not folder:
            return self.source, self.hub
        if not os.path.isdir(self.source):  # AutoProcessor does not find all of it in a subfolder
            options = {key: self.hub[key] for key in DOWNLOAD_OPTIONS if key in self.hub}
            patterns = [f"{folder}/{name}" for name in PROCESSOR]
            snapshot_download(self.source, allow_patterns=patterns, **options)
        return str(self.directory), {}

    def check_weights(self) -> None:
        """Read the header of the weights.

        Raises:
            CheckpointError: If they are missing, pickled, damaged, or too small for the ranks of the config.
        """
        path = self._find(WEIGHTS)
        if path is None and self._find(PICKLED) is not None:
            raise CheckpointError(
                f"{self.source!r} has its weights in {PICKLED}, a pickle: loading one can run "
                f"any code. Expected {WEIGHTS}. If you trust the file, convert it once: "
                "safetensors.torch.save_file(torch.load('adapter_model.bin', weights_only=True), "
                "'adapter_model.safetensors')."
            )
        if path is None:
            raise CheckpointError(f"{self.source!r} has {CONFIG} but no {WEIGHTS}. Save or push it again.")
        try:
            shapes = read_shapes(Path(path).parent)
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        # PEFT makes layers of the config's rank before it reads weights: a wrong rank might fill the memory.
        # A is (rank, in) and B is (out, rank); what else was saved says nothing of ranks.
        ranks = [
            shape[bool(re.search(r"lora_(embedding_)?B", key))]
            for key, shape in shapes.items()
            if "lora_" in key and len(shape) > 1
        ]
        if (largest := largest_rank(self.config)) > max(ranks, default=0):
            raise CheckpointError(
                f"The {CONFIG} of {self.source!r} asks for rank {largest}, and no tensor of {WEIGHTS} has so "
                "many rows. Download or save the adapter again."
            )

    def _recorded_base(self, recorded: str | None) -> str:
        if not recorded:
            raise CheckpointError(
                f"The {CONFIG} of {self.source!r} names no base model. Say which one it was "
                "trained on: AutoVLMPolicy.from_pretrained(..., base_model=<Hub id or directory>)."
            )
        for path in (Path(recorded), self.directory / recorded):
            if path.is_dir():
                if not path.is_absolute():
                    logger.warning(
                        f"{self.source!r} names its base by the relative path {recorded!r}, taken as "
                        f"{path.resolve()}. base_model=... names another one."
                    )
                return str(path)
        if not HUB_ID.fullmatch(recorded):
            raise CheckpointError(
                f"{self.source!r} was trained on {recorded!r}, a directory that is not here (nor beside "
                "the adapter). Say where the base model is now: base_model=<Hub id or directory>."
            )
        return recorded

    def _find(self, name: str) -> str | None:
        return cached_file(
            self.source, name, **file_arguments(self.hub), _raise_exceptions_for_missing_entries=False
        )


def find_adapter(source: str, hub: Mapping[str, Any]) -> Adapter | None:
    """The adapter at `source`; None if there is no adapter_config.json.

    Raises:
        CheckpointError: If there is no such directory, or adapter_config.json is damaged or has a field or
            value that is refused (`config.FIELDS`).
        UnsupportedModelError: If it is an adapter that cannot work on a policy.
    """
    check_location(source, file_arguments(hub))
    path = find_adapter_config_file(source, **file_arguments(hub))
    if path is None:
        return None
    folder = Path(path).parent
    return Adapter(source, hub, load_config(folder, source), folder)
