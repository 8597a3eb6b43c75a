"""The content of a card as JSON beside the adapter, so that a later push can write the card anew."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...evaluation.measurement import Evaluation
from .card import AdapterCardData
from .facts import AdapterFacts, BaseFacts, CardFacts, Curve, PartFacts, RunFacts, StageFacts

FILE = "card.json"


def store(card: AdapterCardData, folder: Path) -> None:
    """Write a card's content into a folder."""
    content = json.dumps(dataclasses.asdict(card), indent=2)
    (folder / FILE).write_text(content + "\n", encoding="utf-8")


def stored(folder: Path) -> AdapterCardData | None:
    """The card's content in a folder; None if `save_adapter` did not write it.

    Raises:
        ValueError: If the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        facts, repo_id = content.pop("facts"), content.pop("repo_id")
        content["evaluations"] = [_evaluation(item) for item in content["evaluations"]]
        card = AdapterCardData(**content)
        card.repo_id, card.facts = repo_id, _facts(**facts)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Expected it as save_adapter wrote it: "
            "save again, or delete it to have the card written from the other files."
        ) from error
    return card


def _evaluation(item: Mapping[str, Any]) -> Evaluation:
    intervals = {name: item[name] and tuple(item[name]) for name in ("before_ci", "after_ci")}
    return Evaluation(**{**item, **intervals})


def _facts(base: dict, adapter: dict, run: dict | None, versions: dict, stages: Sequence = ()) -> CardFacts:
    adapter["parts"] = tuple(PartFacts(**part) for part in adapter["parts"])
    if run and run["curve"]:
        run["curve"] = Curve(**run["curve"])
    facts = RunFacts(**run) if run else None
    earlier = tuple(StageFacts(**stage) for stage in stages)
    return CardFacts(BaseFacts(**base), AdapterFacts(**adapter), facts, versions, earlier)
