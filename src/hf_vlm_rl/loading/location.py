"""Where a checkpoint is, what kind it is, and which commit of the Hub was read."""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from transformers import PreTrainedConfig
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, cached_file

from ..errors import CheckpointError, UnsupportedModelError

# Arguments of `from_pretrained` that the config, the model and the processor take alike.
HUB_ARGUMENTS = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
    "trust_remote_code",
)

# A folder inside the Hub's cache says which repository and commit it holds.
SNAPSHOT = re.compile(r"models--([^/\\]+)[/\\]snapshots[/\\]([0-9a-f]{40})")


# `name` or `user/name`; anything else has to be a directory.
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check_location(source: str, located: Mapping[str, Any] | None = None) -> None:
    """Refuse what is neither a directory nor a model on the Hub, before transformers asks the Hub for long.

    No request is made for a name that cannot be an id. Where a folder of this machine is probably meant, the
    Hub is asked once whether it has such a model.

    Raises:
        CheckpointError: If there is no such directory, and no such model on the Hub.
    """
    path = Path(source)
    if path.is_dir():
        return
    likely, hint = (False, "") if path.is_file() else folder_hint(source)
    state = "a file" if path.is_file() else "not there"
    if HUB_ID.fullmatch(source):
        if not likely or _is_on_hub(source, dict(located or {})):
            return
        state = "no folder here, and the Hub was not reached or shows no such model to you"
    raise CheckpointError(
        f"{source!r} is {state}.{hint} Expected a directory, or a Hub id such as user/model."
    )


def folder_hint(source: str) -> tuple[bool, str]:
    """Of a path that does not exist: whether a folder is probably meant, and what to say of it.

    It is meant where its parent is here, or a folder whose name is like it.
    """
    path = Path(source)
    missing = next(each for each in (*reversed(path.parents), path) if not each.is_dir())
    try:
        beside = [each.name for each in missing.parent.iterdir() if each.is_dir()]
    except OSError:  # a folder that may be entered and not listed
        beside = []
    close = [str(missing.parent / name) for name in difflib.get_close_matches(missing.name, beside)]
    if source.startswith("~") and path.expanduser().is_dir():
        close = [str(path.expanduser())]
    there = f" There is no folder {str(missing)!r}." if missing != path else ""
    meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return bool(close) or missing.parent != Path(), there + meant


def hub_has(source: str, repo_type: str, token: str | bool | None = None) -> bool:
    """Ask the Hub once, for five seconds at most, whether it has a repository; no connection counts as no."""
    try:
        HfApi().repo_info(source, repo_type=repo_type, token=token, timeout=5)
    except (RepositoryNotFoundError, HFValidationError, OfflineModeIsEnabled) as error:
        return isinstance(error, GatedRepoError)  # its error says how to get access
    except HTTPError as error:
        return isinstance(error, HfHubHTTPError)  # an overloaded Hub: those who ask next try again
    return True


def _is_on_hub(source: str, located: dict[str, Any]) -> bool:
    """Whether the Hub's cache or the Hub has a model or an adapter."""
    at = {key: located[key] for key in ("cache_dir", "revision") if located.get(key)}
    for name in (CONFIG_NAME, ADAPTER_CONFIG_NAME):
        file = str(Path(located.get("subfolder") or "", name))
        try:
            if isinstance(try_to_load_from_cache(source, file, **at), str):
                return True
        except HFValidationError:  # no id, such as a--b
            return False
    return not located.get("local_files_only") and hub_has(source, "model", located.get("token"))


def elsewhere(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `HUB_ARGUMENTS` that also hold for another repository, as that of an adapter's base."""
    return {key: value for key, value in arguments.items() if key not in ("revision", "subfolder")}


def file_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `HUB_ARGUMENTS` that say where a single file is."""
    return {key: arguments[key] for key in HUB_ARGUMENTS if key in arguments and key != "trust_remote_code"}


def read_config(source: str, located: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a model.

    Raises:
        CheckpointError: If there is no such directory, no config.json in it, or no `model_type` in that.
        OSError: If there is no such repository.
        UnsupportedModelError: If there is an adapter instead.
    """
    check_location(source, located)
    config, _ = PreTrainedConfig.get_config_dict(source, **located)
    if not isinstance(config, dict):
        raise CheckpointError(
            f"config.json of {source!r} is a {type(config).__name__}. Expected an object; download it again."
        )
    if isinstance(config.get("model_type", ""), list | dict | int | float):
        raise CheckpointError(
            f"config.json of {source!r} has the model_type {config['model_type']!r}. Expected a name, "
            "such as 'qwen3_vl'; download the checkpoint again."
        )
    if "model_type" in config:
        return config
    adapter = cached_file(source, ADAPTER_CONFIG_NAME, **located, _raise_exceptions_for_missing_entries=False)
    if adapter is not None:
        base = json.loads(Path(adapter).read_text(encoding="utf-8")).get("base_model_name_or_path")
        raise UnsupportedModelError(
            f"{source!r} is a PEFT adapter. Expected a model, such as the adapter's base: {base!r}."
        )
    if config:
        raise CheckpointError(
            f"config.json of {source!r} has no model_type: it is not the config of a model."
        )
    inside = sorted(str(path.parent) for path in Path(source).glob("*/*config.json"))
    meant = f" Did you mean {inside[-1]!r}?" if inside else ""
    place = f"Subfolder {located['subfolder']!r} of {source!r}" if located.get("subfolder") else repr(source)
    raise CheckpointError(
        f"{place} has no config.json. Expected a directory that save_pretrained wrote, or a Hub id.{meant}"
    )


def loaded_commit(source: str, located: Mapping[str, Any]) -> str | None:
    """The commit that `from_pretrained` read; None for a directory that is not the Hub's cache."""
    path = cached_file(source, CONFIG_NAME, **located)
    snapshot = SNAPSHOT.search(str(path))
    return snapshot[2] if snapshot else None
