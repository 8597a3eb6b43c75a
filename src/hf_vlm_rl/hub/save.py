"""The complete folder of an adapter: what a push uploads, and nothing else."""

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

import yaml
from huggingface_hub import eval_result_entries_to_yaml
from transformers.utils import logging

from ..evaluation.callback import EvaluationCallback
from ..loading.adapters.config import changes_base
from ..loading.adapters.files import CONFIG, STAGES, WEIGHTS, changes_nothing
from ..policy.trained.fingerprint import fingerprint
from ..processing.ids.tokenizer import IdsTokenizer
from .base_model import base_facts
from .cards.adapter_facts import adapter_facts
from .cards.card import AdapterCardData
from .cards.facts import BaseFacts, CardFacts, Curve, RunFacts, StageFacts
from .cards.hyperparameters import shareable
from .cards.merge import merge
from .cards.render import draw, render
from .cards.run_facts import run_facts, versions
from .cards.stored import store, stored
from .files import ARGUMENTS, CARD, CURVE, RESULTS, pushable

logger = logging.get_logger(__name__)

# The trainings of this process that were saved: of a model's adapters, by name, each with its trainer.
_saved: WeakKeyDictionary[Any, dict[str, list[tuple[ref, StageFacts]]]] = WeakKeyDictionary()


def save_adapter(
    trainer_or_model: Any,
    output_dir: str | os.PathLike,
    *,
    card: AdapterCardData | Mapping[str, Any] | None = None,
    base_model: str | None = None,
    base_revision: str | None = None,
    processing_class: Any = None,
) -> list[Path]:
    """Write everything that belongs to an adapter.

    Adapter weights (safetensors), `adapter_config.json` with the base's id and commit, the native
    processor with its chat template, `training_args.json` without secrets and paths, the card with
    its learning curve and the results of the trainer's `EvaluationCallback`, and `.eval_results/` where
    they apply. Text that somebody wrote into the card of that folder stays.

    Args:
        trainer_or_model: A TRL trainer whose model has an adapter, or a `PeftModel`.
        output_dir: The folder; other files in it are left alone.
        card: What the card should say, as `AdapterCardData` or its fields.
        base_model: Id of the base on the Hub, if it was loaded from a local path.
        base_revision: Its commit, tag or branch. Default: the commit that was loaded, if known.
        processing_class: Default: the trainer's or the policy's.

    Returns:
        The files to push; `card.json`, from which a later push writes the card anew, stays here. On
        ranks other than 0, which write nothing: [].

    Raises:
        ValueError: If there is no adapter or more than one is active, no trainable weight in that of a
            trainer, or no processor, the existing card cannot be read,
            `base_model` is no id on the Hub, or a file of the folder that a push would take is a link.
    """
    trainer, model = trainer_and_model(trainer_or_model)
    folder = Path(output_dir)
    if trainer is not None and not any(weight.requires_grad for weight in model.parameters()):
        raise ValueError(
            f"Got a {type(trainer).__name__} whose adapter has no trainable weights: it has trained nothing, "
            "and a card would say that it did. Load the adapter with trainable=True and train again, or save "
            "trainer.model, whose card speaks of no training."
        )
    adapter_name, *others = model.active_adapters
    if others:
        raise ValueError(
            f"Got a model with the active adapters {[adapter_name, *others]}. Expected one: choose it with "
            "model.set_adapter(name), or join them with model.add_weighted_adapter(...)."
        )
    base = base_facts(model, base_model, base_revision)
    processing_class = _processing_class(trainer, model, processing_class)
    folder.mkdir(parents=True, exist_ok=True)
    # Aside first: a run that is killed here leaves the files of an earlier one complete. Aside is
    # inside the folder, which may be a disk of its own.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as place:
        staged = Path(place)
        if trainer is not None:
            # Gathers sharded weights. An internal call pushes nothing, whatever the arguments say.
            trainer.save_model(str(staged), _internal_call=True)
            if not trainer.is_world_process_zero():
                return []
        else:
            model.save_pretrained(str(staged), selected_adapters=[adapter_name])
        adapter = staged if (staged / WEIGHTS).exists() else staged / adapter_name
        moved = {adapter / name: folder / name for name in (CONFIG, WEIGHTS)}
        for path in moved:
            if not path.is_file():
                raise ValueError(
                    f"Saving the adapter left no {path.name}. Expected PEFT to write it; with FSDP, the "
                    "trainer needs state_dict_type FULL_STATE_DICT."
                )
        processor = staged / "processor"
        processing_class.save_pretrained(processor)
        name_base(adapter / CONFIG, base)
        moved |= {
            path: folder / path.relative_to(processor) for path in processor.rglob("*") if path.is_file()
        }
        for path, final in moved.items():
            final.parent.mkdir(exist_ok=True)
            os.replace(path, final)
    card = card_of(card)  # only now: a mistake in it must not cost the weights
    if changes_nothing(folder):
        logger.warning(
            f"The adapter in {folder} changes nothing: every B of it is zero. Train it, or it is refused "
            "when it is loaded; after a training, the learning rate was zero or no gradient reached it."
        )
    run = None if trainer is None or not trainer.state.global_step else run_facts(trainer)
    stages = _stages(model, adapter_name, trainer, run)
    earlier = stages if run is None else stages[:-1]
    if trainer is None and (known := earlier_card(folder)) and known.facts and known.facts.run:
        (folder / ARGUMENTS).unlink(missing_ok=True)  # of a training that the card no longer tells of
    card.facts = CardFacts(base, adapter_facts(folder, model), run, versions(), earlier)
    _note(folder / CONFIG, model, stages)
    if trainer is not None:
        card.evaluations = card.evaluations or [
            evaluation
            for callback in trainer.callback_handler.callbacks
            if isinstance(callback, EvaluationCallback)
            for evaluation in callback.evaluations(trainer.state.global_step)
        ]
        _write_json(folder / ARGUMENTS, shareable(trainer.args))
    write_card(folder, card)
    return pushable(folder)


def write_card(folder: Path, card: AdapterCardData) -> None:
    """Write the card and what it shows, in place of what the card before it showed.

    Hand-written text of an existing card stays.
    """
    known = earlier_card(folder)
    curve = _curve(card)
    outdated = set() if known is None else {folder / RESULTS / name for name in _results(known)}
    if known is not None and _curve(known) not in (None, curve):
        outdated.add(folder / CURVE)
    for path in outdated:
        path.unlink(missing_ok=True)
    store(card, folder)
    drawn = curve is not None and draw(curve, folder / CURVE)
    content, path = render(card, curve_drawn=drawn), folder / CARD
    if path.exists():
        content = merge(content, path.read_text(encoding="utf-8"), str(path), bool(card.license))
    path.write_text(content, encoding="utf-8")
    for name, entries in _results(card).items():
        path = folder / RESULTS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False))


def earlier_card(folder: Path) -> AdapterCardData | None:
    """The card that an earlier save wrote into a folder; None if there is none, or it cannot be read."""
    with contextlib.suppress(ValueError):
        return stored(folder)
    return None


def _curve(card: AdapterCardData) -> Curve | None:
    run = card.filled().run
    return None if run is None else run.curve


def _results(card: AdapterCardData) -> dict[str, list[Any]]:
    """Names of files in `RESULTS` to their entries."""
    by_file: dict[str, list[Any]] = {}
    for entry in filter(None, (item.entry() for item in card.evaluations)):
        by_file.setdefault(f"{entry.dataset_id.replace('/', '--')}.yaml", []).append(entry)
    return by_file


def card_of(
    card: AdapterCardData | Mapping[str, Any] | None, known: AdapterCardData | None = None
) -> AdapterCardData:
    """A card of its own, from what a caller may pass; fields that it does not name are those of `known`."""
    if isinstance(card, AdapterCardData):
        return dataclasses.replace(card)
    try:
        return dataclasses.replace(known or AdapterCardData(), **(card or {}))
    except TypeError as error:
        names = ", ".join(item.name for item in dataclasses.fields(AdapterCardData) if item.init)
        raise ValueError(
            f"Got card={card!r} ({error}). Expected AdapterCardData or its fields: {names}."
        ) from error


def trainer_and_model(trainer_or_model: Any) -> tuple[Any, Any]:
    """The trainer, or None, and the `PeftModel`.

    Raises:
        ValueError: If there is no adapter.
    """
    # Trainers have no common base class: PPO's and transformers' have these.
    is_trainer = hasattr(trainer_or_model, "save_model") and hasattr(trainer_or_model, "args")
    trainer, model = (trainer_or_model if is_trainer else None), trainer_or_model
    if trainer is not None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = getattr(model, "policy", model)  # PPO's, beside its critic
    if not hasattr(model, "peft_config") or not hasattr(model, "get_base_model"):
        raise ValueError(
            f"Got a {type(model).__name__}{' in the trainer' if trainer is not None else ''}, which has no "
            "adapter. Expected a PeftModel: pass peft_config=policy.lora_config(...) to the trainer. All "
            "weights are pushed by their own push_to_hub."
        )
    return trainer, model


def _stages(model: Any, adapter_name: str, trainer: Any, run: RunFacts | None) -> tuple[StageFacts, ...]:
    """The trainings of an adapter up to `run`, that of `trainer`, which is kept for trainers that go on."""
    noted = (model.peft_config[adapter_name].auto_mapping or {}).get(STAGES, ())
    saved = _saved.setdefault(model, {}).setdefault(adapter_name, [])
    places = (place for place, (of, _) in enumerate(saved) if trainer is not None and of() is trainer)
    end = next(places, len(saved))
    if run is not None:
        saved[end : end + 1] = [(ref(trainer), StageFacts(run.trainer, run.method, run.steps))]
        end += 1
    return (*(StageFacts(**stage) for stage in noted), *(stage for _, stage in saved[:end]))


def _note(path: Path, model: Any, stages: Sequence[StageFacts]) -> None:
    """Write what an adapter's next loading and next card ask for into its config: its base, its trainings."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    config = model.peft_config[model.active_adapters[0]]
    about = stored.get("auto_mapping") or {}
    # A config of the user's own has none; the base's weights must still be those that were loaded.
    if "base_weights" not in about and not changes_base(config) and stored.get("bias", "none") == "none":
        about |= fingerprint(model.get_base_model())
    if stages:
        about |= {STAGES: [dataclasses.asdict(stage) for stage in stages]}
    _write_json(path, stored | {"auto_mapping": about or None})


def _processing_class(trainer: Any, model: Any, processing_class: Any) -> Any:
    for owner in (trainer, model):  # a stock model has none, nor has a missing trainer
        if processing_class is None:
            processing_class = getattr(owner, "processing_class", None)
    if isinstance(processing_class, IdsTokenizer):
        processing_class = processing_class.processing_class
    if not hasattr(processing_class, "image_processor"):  # a tokenizer, or a processor of sounds
        raise ValueError(
            f"Got {type(processing_class).__name__} as processing class. Expected the model's processor, "
            "which is saved with the adapter: pass processing_class=policy.processing_class."
        )
    return processing_class


def name_base(path: Path, base: BaseFacts) -> None:
    """Write the base's id and commit into an `adapter_config.json`, if the id is known."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if base.model_id is not None:
        config |= {"base_model_name_or_path": base.model_id, "revision": base.revision}
    for key in ("target_modules", "modules_to_save", "exclude_modules"):
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])  # a set for PEFT: another order would be a change
    _write_json(path, config)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
