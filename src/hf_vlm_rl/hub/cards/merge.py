"""Keeping what the author wrote by hand when a card is written anew."""

import re
from collections.abc import Mapping
from typing import Any

from huggingface_hub import CardData, RepoCard
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from yaml import YAMLError

from ...data import bounded_yaml
from .methods import METHODS
from .stock_cards import is_stock

BEGIN = "<!-- hf-vlm-rl:begin"
END = "<!-- hf-vlm-rl:end -->"
ORDER = (
    *("base_model", "base_model_relation", "library_name", "pipeline_tag", "license", "license_name"),
    *("license_link", "language", "datasets", "tags", "model-index"),
)
# Lists of which the author may have made longer ones.
UNITED = ("tags", "datasets", "language")
BLOCK = re.compile(f"{BEGIN}.*?{END}", flags=re.DOTALL)
# The block names the keys that were written with it, and the license, to know a changed one.
KEYS = re.compile(rf"{BEGIN}[^>]*^Generated keys: (.*)$", flags=re.MULTILINE)
# One statement in three keys: the author's counts, unless it was given for this push.
LICENSE = ("license", "license_name", "license_link")


def merge(content: str, existing: str, where: str, new_license: bool = False) -> str:
    """A fresh card with what its author had added to the existing one.

    Text outside the generated block stays. So do metadata keys that the fresh card lacks, items added
    to `tags`, `datasets` and `language`, and the license unless this push gives one. A card without
    such a block goes below the generated one as a whole, or, if PEFT or a trainer wrote it
    (`stock_cards.is_stock`), is replaced.

    Raises:
        ValueError: If the existing card's metadata is no YAML mapping, if its block's marks are damaged, or
            if both cards have text written by hand, and it differs.
    """
    metadata, body = _parse(content, "the fresh card")
    old_metadata, old_body = _parse(existing, where)
    around = _around_block(old_body, where)
    if around is None and is_stock(old_body):
        around, old_metadata = ("", "\n"), {}
    elif around is None:
        around = "\n", f"\n\n{old_body.strip()}\n"
    local, block = _around_block(body, "the card to push"), BLOCK.search(body)
    if local is None or block is None:
        raise ValueError(
            "Got a card to push without the block that is generated. Expected one of save_adapter."
        )
    texts = [[text.strip() for text in side] for side in (local, around)]
    if all(map(any, texts)) and texts[0] != texts[1]:
        raise ValueError(
            f"Both the local card and {where} have text written by hand, and they differ. Delete the local "
            "README.md to keep the other one's, or bring them together by hand, then push again."
        )
    before, after = local if any(texts[0]) else around
    merged = _united(metadata, old_metadata, _generated(old_body), new_license)
    return write(merged, f"{before}{block[0]}{after}")


def write(metadata: Mapping[str, Any], body: str) -> str:
    """A card's text."""
    known = {key: metadata[key] for key in ORDER if key in metadata}
    return f"---\n{CardData(**{**known, **metadata}).to_yaml()}\n---\n{body}"


def _parse(content: str, where: str) -> tuple[dict[str, Any], str]:
    """Metadata and body of a card."""
    if not content.lstrip().startswith("---"):
        return {}, content
    try:
        if block := REGEX_YAML_BLOCK.search(content):
            bounded_yaml.load(block[2])
        card = RepoCard(content)
        metadata = card.data.to_dict()
        if bad := [
            key for key in UNITED if not all(isinstance(each, str) for each in _listed(metadata.get(key, [])))
        ]:
            raise ValueError(f"{bad} hold more than texts")
    except (TypeError, ValueError, YAMLError) as error:  # TypeError: keys that are no texts
        raise ValueError(
            f"The metadata of {where} cannot be read ({error}). Expected YAML between two lines of "
            "'---'. Repair or delete that file, then push again."
        ) from error
    return metadata, card.text


def _around_block(body: str, where: str) -> tuple[str, str] | None:
    """What stands before and after the generated block; None if there is no such block."""
    around = BLOCK.split(body)
    if len(around) > 2 or any(mark in text for text in around for mark in (BEGIN, END)):
        raise ValueError(
            f"{where} does not have one {BEGIN!r} mark followed by one {END!r} mark. Expected the "
            "generated block between them. Restore the marks, or delete the file to have it written anew."
        )
    return (around[0], around[1]) if len(around) == 2 else None


def _generated(body: str) -> dict[str, str]:
    match = KEYS.search(body)
    return dict(item.partition("=")[::2] for item in match[1].split(", ")) if match else {}


def _united(
    fresh: dict[str, Any], old: dict[str, Any], generated: dict[str, str], new_license: bool
) -> dict[str, Any]:
    if "license" in old:
        changed = old["license"] != generated.get("license") and not new_license
        weaker = fresh if changed else old
        for key in LICENSE:
            weaker.pop(key, None)
    merged = dict(fresh)
    for key, value in old.items():
        if key in UNITED and key in fresh:
            added = [item for item in _listed(value) if item not in METHODS]
            merged[key] = list(dict.fromkeys([*_listed(fresh[key]), *added]))
        elif key not in fresh and (key not in generated or key in LICENSE):
            merged[key] = value
    return merged


def _listed(value: Any) -> list:
    return list(value) if isinstance(value, list | tuple) else [value]
