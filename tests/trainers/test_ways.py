"""The table of docs/trainers.md: every trainer of this TRL is in it, and what it says of the others holds."""

import ast
import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import trl
from datasets import Dataset
from transformers import set_seed

from tests.documents.pages import ROOT, script
from tests.trainers.homes import LANE, home
from tests.trainers.ids_runs import by_text, carried, preferences, prompts, scored
from tests.trainers.runs import PLAIN, ROLLOUT, by_ids, square
from tests.trainers.ways import FIRST, WAYS

pytestmark = pytest.mark.trl

HERE = Path(trl.__file__).parent
FAMILY = "qwen2_5_vl"


def trainers() -> set[str]:
    """The trainers of this TRL that are no other name of one."""
    found = set()
    for path in sorted(HERE.glob("**/*.py")):
        where = path.relative_to(HERE).parts
        package = f"{where[1]}." if where[0] == "experimental" else ""
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef) or not node.name.endswith("Trainer"):
                continue
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            deprecated = f"_{node.name}" in bases and "__init__.py" in where
            if node.name != "_BaseTrainer" and not deprecated:
                found.add(package + node.name)
    return found


def test_every_trainer_of_this_trl_has_a_way():
    if LANE == FIRST:
        pytest.skip("of TRL 1.0, the table has what the tests marked ppo run")
    assert trainers() == {name for name, way in WAYS.items() if LANE in way.cells}


def test_every_test_that_the_table_names_exists():
    assert all((ROOT / way.test).is_file() for way in WAYS.values())


def test_the_page_is_what_its_script_writes():
    made = script("make_trainers")
    assert made.PAGE.read_text() == made.page(), "run `make docs`"


def part(package: str, name: str):
    """A class that is experimental, or was, where this TRL has it."""
    return getattr(home(package, name), name)


def settings(out, **options) -> dict:
    return {"output_dir": str(out), **PLAIN, "max_steps": 1, **options}


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("bema_for_ref_model", "DPOTrainer"),
        ("gspo_token", "GRPOTrainer"),
    ],
)
def test_a_variant_of_a_trainer_reads_the_column_of_images(package, name, policy_for, tmp_path):
    trainer_class = part(package, name)
    losses = []
    for image in ("cat", "coffee"):
        policy = policy_for(FAMILY)
        set_seed(0)
        if name == "DPOTrainer":
            config, own = trl.DPOConfig, {}
            options = {"per_device_train_batch_size": 3, "max_length": None}
            rows = preferences(square(image))
        else:
            own = {"reward_funcs": by_ids}
            options = ROLLOUT | {"per_device_train_batch_size": 6, "max_steps": 1, "steps_per_generation": 1}
            config = trl.GRPOConfig
            if package == "gspo_token":
                options["importance_sampling_level"] = "sequence_token"
            rows = prompts(square(image))
        trainer = trainer_class(
            model=policy,
            processing_class=policy.processing_class,
            train_dataset=Dataset.from_list(rows),
            args=config(**settings(tmp_path, **options)),
            peft_config=policy.lora_config(r=4),
            **own,
        )
        trainer.train()
        assert policy.sharing_report()["images_encoded"] > 0
        losses.append([log["grad_norm"] for log in trainer.state.log_history if "grad_norm" in log])
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("package", "name", "more"),
    [
        ("async_grpo", "AsyncGRPOTrainer", {"reward_funcs": by_text}),
        ("async_distillation", "AsyncDistillationTrainer", {}),
    ],
)
def test_asynchronous_trainers_take_no_policy(package, name, more, policy_for, tmp_path, monkeypatch):
    if importlib.util.find_spec("aiohttp") is None:  # they import it, and ask no server before they fail
        client = ModuleType("aiohttp")
        client.__spec__ = ModuleSpec("aiohttp", None)
        client.ClientError, client.ClientTimeout, client.ClientSession = OSError, object, object
        monkeypatch.setitem(sys.modules, "aiohttp", client)
    trainer_class, config = part(package, name), part(package, name.replace("Trainer", "Config"))
    policy = policy_for(FAMILY)
    with pytest.raises((TypeError, ValueError, OSError)):
        trainer_class(
            model=policy,
            processing_class=policy.tokenizer,
            train_dataset=carried(policy, prompts(square("cat"))),
            args=config(**settings(tmp_path)),
            **more,
        )


def test_a_teacher_on_a_server(policy_for, tmp_path, monkeypatch):
    trainer_class = part("server_distillation", "ServerDistillationTrainer")
    config = part("server_distillation", "ServerDistillationConfig")
    # No server is asked before the refusal.
    monkeypatch.setattr("trl.generation.vllm_client.VLLMClient", lambda **settings: None)
    for inside in (False, True):
        policy = policy_for(FAMILY)
        rows, url = prompts(square("cat")), "http://localhost:1"
        trainer = trainer_class(
            model=policy,
            processing_class=policy.tokenizer if inside else policy.processing_class,
            train_dataset=carried(policy, rows) if inside else Dataset.from_list(rows),
            args=config(**settings(tmp_path, per_device_train_batch_size=3, teacher_model_server_url=url)),
        )
        with pytest.raises(ValueError, match="ServerDistillationTrainer has teacher_model_server_url set"):
            trainer.train()
        assert trainer.state.global_step == 0


@pytest.mark.parametrize("kind", ["policy", "reward model"])
def test_steps_that_are_judged(kind, policy_for, tmp_path):
    trainer_class, config = part("prm", "PRMTrainer"), part("prm", "PRMConfig")
    policy = policy_for(FAMILY)
    model = policy if kind == "policy" else scored(policy)["reward_funcs"]
    row = {"prompt": "<|image_pad|> What is it?", "images": [square("cat")]}
    dataset = carried(policy, [row | {"completions": ["A", "cup"], "labels": [True, False]}] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trainer_class(
            model=model,
            processing_class=policy.tokenizer,
            train_dataset=dataset,
            args=config(**settings(tmp_path, per_device_train_batch_size=3, max_length=None)),
        )
        with pytest.raises(ValueError, match="PRMTrainer"):
            trainer.train()
    assert trainer.state.global_step == 0
