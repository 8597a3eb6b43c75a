"""What a push leaves on the Hub, by the true client against a server on this machine."""

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from huggingface_hub import ModelCard, metadata_load
from peft import LoraConfig, get_peft_model
from safetensors.torch import load as load_safetensors
from safetensors.torch import load_file, save_file

from hf_vlm_rl import PushError
from hf_vlm_rl.hub import push_adapter, push_folder, save_adapter
from hf_vlm_rl.hub.base_model import recorded
from hf_vlm_rl.hub.cards import Evaluation
from tests.hub.card_rules import problems
from tests.hub.conftest import BASE
from tests.hub.server import ALICE, Fault

REPO = "alice/adapter"


def heads(hub, name=REPO):
    return [commit.message for commit in hub.repositories[name].history()]


def test_the_adapter_the_processor_the_arguments_and_the_card_are_pushed_and_nothing_else(push, hub, card):
    push(card=card)
    files = set(hub.files(REPO))
    processor = {"chat_template.jinja", "processor_config.json", "tokenizer.json", "tokenizer_config.json"}
    adapter = {"adapter_model.safetensors", "adapter_config.json"}
    assert files == processor | adapter | {"README.md", "training_args.json", "assets/learning_curve.png"}


def test_only_the_adapters_weights_are_pushed(push, hub):
    push()
    weights = load_safetensors(hub.files(REPO)["adapter_model.safetensors"])
    assert weights
    assert all(".lora_A." in key or ".lora_B." in key for key in weights)
    assert all(key.startswith("base_model.model.model.language_model.") for key in weights)


def test_the_config_names_the_base_and_the_commit_it_was_loaded_from(push, hub):
    push()
    config = json.loads(hub.files(REPO)["adapter_config.json"])
    assert config["base_model_name_or_path"] == BASE
    assert config["revision"] == hub.repositories[BASE].head().oid


def test_arguments_are_pushed_without_tokens_names_and_places(push, hub, trainer):
    push()
    arguments = json.loads(hub.files(REPO)["training_args.json"])
    assert arguments["learning_rate"] == trainer.args.learning_rate
    assert arguments["num_generations"] == 2
    assert not {"hub_token", "output_dir", "run_name", "logging_dir"} & set(arguments)
    everything = b"".join(hub.files(REPO).values())
    for private in (ALICE, trainer.args.output_dir, "a run of mine"):
        assert private.encode() not in everything


def test_the_metadata_is_what_the_hub_understands(push, hub, card, tmp_path):
    push(card=card)
    content = hub.files(REPO)["README.md"].decode()
    assert problems(content) == []
    data = ModelCard(content).data
    assert data.library_name == "peft"
    assert data.pipeline_tag == "image-text-to-text"
    assert (data.base_model, data.base_model_relation) == (BASE, "adapter")
    assert (data.datasets, data.language) == (["org/photos"], ["en"])
    assert data.tags == ["trl", "grpo", "lora", "conversational", "hf-vlm-rl"]
    [result] = data.eval_results
    assert (result.metric_value, result.metric_args["n"]) == (0.808, 500)
    assert result.metric_args["ci_95"] == [0.771, 0.842]
    assert result.metric_args["before"] == 0.596
    (tmp_path / "card.md").write_text(content)
    assert "licence" not in metadata_load(tmp_path / "card.md")


@pytest.mark.parametrize(("given", "expected"), [({}, "apache-2.0"), ({"license": "mit"}, "mit")])
def test_the_license_is_that_of_the_base_unless_given(push, hub, given, expected):
    push(card=given)
    assert ModelCard(hub.files(REPO)["README.md"].decode()).data.license == expected


def test_benchmarks_with_a_leaderboard_get_eval_results(push, hub):
    result = Evaluation("Bench", "accuracy", 100, 0.5, dataset_id="org/bench", task_id="default")
    push(card={"evaluations": [result]})
    [entry] = yaml.safe_load(hub.files(REPO)[".eval_results/org--bench.yaml"])
    assert entry == {"dataset": {"id": "org/bench", "task_id": "default"}, "value": 0.5, "notes": "n 100"}


def test_a_second_push_of_the_same_makes_no_commit_and_sends_no_weights(push, hub, card):
    first = push(card=card)
    before = list(hub.received)
    second = push(card=card)
    assert second.oid == first.oid
    assert hub.received == before
    assert len(heads(hub)) == 2  # the first one and ours


def test_a_repository_name_without_a_user_goes_to_the_account_of_the_token(push, hub):
    push(repo_id="mine")
    assert "alice/mine" in hub.repositories
    assert 'AutoVLMPolicy.from_pretrained("alice/mine"' in hub.files("alice/mine")["README.md"].decode()


def test_private_creates_a_private_repository(push, hub):
    push(private=True)
    assert hub.repositories[REPO].private


def test_private_refuses_a_repository_that_is_public(push, hub, tmp_path):
    hub.add(REPO)
    with pytest.raises(ValueError, match="exists and is public"):
        push(private=True)
    assert hub.files(REPO) == {}
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_revision_is_a_branch_that_is_made(push, hub):
    push(revision="experiment", commit_message="Try this")
    assert hub.files(REPO) == {}
    assert "adapter_model.safetensors" in hub.files(REPO, "experiment")
    assert hub.repositories[REPO].head("experiment").message == "Try this"


def test_create_pr_leaves_the_branch_as_it_is(push, hub):
    hub.add("bob/adapter")
    info = push(repo_id="bob/adapter", create_pr=True)
    assert info.pr_url.endswith("/bob/adapter/discussions/1")
    assert hub.files("bob/adapter") == {}
    assert "adapter_model.safetensors" in hub.files("bob/adapter", "refs/pr/1")


def test_what_the_author_wrote_on_the_hub_stays(push, hub, card):
    push(card=card)
    content = hub.files(REPO)["README.md"].decode()
    edited = content.replace("library_name: peft", "library_name: peft\nco2_eq_emissions: 3", 1)
    edited = edited.replace("- hf-vlm-rl\n", "- hf-vlm-rl\n- photos\n", 1) + "\nThanks to my cat.\n"
    put(hub, edited)
    push(card=card | {"summary": "Says even more."})
    again = hub.files(REPO)["README.md"].decode()
    assert again.rstrip().endswith("Thanks to my cat.")
    assert "Says even more." in again
    assert "Says what it sees." not in again
    data = ModelCard(again).data
    assert data["co2_eq_emissions"] == 3
    assert data.tags[-1] == "photos"


def test_text_that_differs_here_and_on_the_hub_is_not_chosen_from(push, hub, tmp_path):
    push()
    put(hub, hub.files(REPO)["README.md"].decode() + "\nWritten on the Hub.\n")
    local = tmp_path / "adapter" / "README.md"
    local.write_text(local.read_text() + "\nWritten here.\n")
    with pytest.raises(ValueError, match=r"Both the local card and README.md of alice/adapter"):
        push()
    local.unlink()
    push()
    assert "Written on the Hub." in hub.files(REPO)["README.md"].decode()


def test_a_card_of_the_stock_trainer_is_replaced(push, hub):
    stock = "---\nlicence: license\n---\n\n# Model Card for x\n\nIt has been trained using [TRL](u).\n"
    stock += "## Quick start\n"
    hub.add(REPO, {"README.md": stock.encode()})
    push()
    content = hub.files(REPO)["README.md"].decode()
    assert problems(content) == []
    assert "Quick start" not in content


def test_the_base_of_a_local_checkpoint_must_be_named(hub, trainer, push, checkpoint, monkeypatch, tmp_path):
    local = str(checkpoint("internvl"))
    monkeypatch.setattr(trainer.model.config, "_name_or_path", local)
    monkeypatch.setattr(trainer.model.peft_config["default"], "base_model_name_or_path", local)
    with pytest.raises(ValueError, match="base_model='namespace/name'"):
        push()
    assert REPO not in hub.repositories
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    push(base_model=BASE)
    config = json.loads(hub.files(REPO)["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == (BASE, None)


def test_a_path_inside_the_cache_of_the_hub_names_the_base(hub, trainer, push, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    path = f"/cache/models--org--tiny-internvl/snapshots/{commit}"
    monkeypatch.setattr(trainer.model.config, "_name_or_path", path)
    push()
    config = json.loads(hub.files(REPO)["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == (BASE, commit)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("org/base", ("org/base", "main")),
        (f"/cache/models--org--base/snapshots/{'a' * 40}", ("org/base", "a" * 40)),
        ("/home/me/base", (None, None)),
        (".", (None, None)),
        (None, (None, None)),
    ],
)
def test_a_recorded_base_is_an_id_or_a_path_in_the_cache_whose_commit_counts(source, expected):
    base = recorded(source, "main")
    assert (base.model_id, base.revision) == expected


def test_a_peft_model_can_be_pushed_without_its_trainer(hub, trainer, tmp_path):
    push_adapter(trainer.model, REPO, output_dir=tmp_path / "adapter", token=ALICE)
    files = hub.files(REPO)
    assert "training_args.json" not in files
    assert ModelCard(files["README.md"].decode()).data.tags == ["lora", "conversational", "hf-vlm-rl"]


def test_a_mistake_in_the_card_does_not_cost_the_weights(push, hub, tmp_path):
    with pytest.raises(ValueError, match=r"Expected AdapterCardData or its fields: title, summary"):
        push(card={"sumary": "Misspelt."})
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_ranks_other_than_the_first_write_and_push_nothing(push, hub, trainer, monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "is_world_process_zero", lambda: False)
    assert push() is None
    assert not any("alice" in request for request in hub.requests)
    assert list((tmp_path / "adapter").iterdir()) == []


def test_several_chat_templates_are_pushed_with_their_folder(push, hub, trainer, monkeypatch):
    processor = trainer.processing_class
    templates = {"default": processor.chat_template, "short": "{{ messages }}"}
    monkeypatch.setattr(processor, "chat_template", templates)
    push()
    assert hub.files(REPO)["additional_chat_templates/short.jinja"] == b"{{ messages }}"


def test_a_model_without_an_adapter_is_refused(hub, policy_for, tmp_path):
    with pytest.raises(ValueError, match="which has no adapter"):
        push_adapter(policy_for("internvl"), REPO, output_dir=tmp_path, token=ALICE)


def test_a_processor_is_needed(hub, trainer, bare_for, tmp_path):
    model = get_peft_model(bare_for("internvl"), LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(ValueError, match="pass processing_class"):
        save_adapter(model, tmp_path)
    save_adapter(model, tmp_path, processing_class=trainer.processing_class)
    assert "| vision tower | 38,176 | frozen, with adapter |" in (tmp_path / "README.md").read_text()


def test_the_tokenizer_of_trainers_of_ids_stands_for_its_processor(trainer, tmp_path):
    processor = trainer.processing_class
    for folder, processing_class in (("processor", processor), ("tokenizer", processor.as_tokenizer())):
        save_adapter(trainer.model, tmp_path / folder, processing_class=processing_class)
    names = {path.name for path in (tmp_path / "processor").iterdir()}
    assert {path.name for path in (tmp_path / "tokenizer").iterdir()} == names
    assert "processor_config.json" in names


def test_a_folder_that_was_saved_can_be_pushed(hub, trainer, card, tmp_path):
    saved = save_adapter(trainer, tmp_path, card=card)
    push_folder(tmp_path, REPO, token=ALICE)
    assert set(hub.files(REPO)) == {path.relative_to(tmp_path).as_posix() for path in saved}
    assert "`by_ids`" in hub.files(REPO)["README.md"].decode()


def test_a_card_that_was_downloaded_with_its_folder_stays_as_it_is(hub, trainer, card, tmp_path):
    save_adapter(trainer, tmp_path, card=card)
    (tmp_path / "card.json").unlink()
    before = (tmp_path / "README.md").read_text()
    push_folder(tmp_path, REPO, token=ALICE)
    assert hub.files(REPO)["README.md"].decode() == before


def test_a_folder_whose_base_was_local_is_pushed_with_all_that_was_known_of_the_run(
    hub, trainer, card, monkeypatch, tmp_path
):
    monkeypatch.setattr(trainer.model.config, "_name_or_path", str(tmp_path))
    monkeypatch.setattr(trainer.model.peft_config["default"], "base_model_name_or_path", str(tmp_path))
    save_adapter(trainer, tmp_path / "adapter", card=card)
    assert "that is not on the Hub" in (tmp_path / "adapter" / "README.md").read_text()
    with pytest.raises(ValueError, match="base_model='namespace/name'"):
        push_folder(tmp_path / "adapter", REPO, token=ALICE)
    push_folder(tmp_path / "adapter", REPO, token=ALICE, base_model=BASE, card={"title": "Renamed"})
    content = hub.files(REPO)["README.md"].decode()
    assert ModelCard(content).data.base_model == BASE
    for known in ("# Renamed", "Says what it sees.", "`by_ids`", "| Photos | accuracy | 500 |"):
        assert known in content


def test_a_folder_of_the_stock_trainer_gets_our_card_and_keeps_its_pickle(hub, trainer, tmp_path):
    trainer.save_model(str(tmp_path))
    assert (tmp_path / "training_args.bin").exists()
    push_folder(tmp_path, REPO, token=ALICE)
    assert "training_args.bin" not in hub.files(REPO)
    content = hub.files(REPO)["README.md"].decode()
    assert problems(content) == []
    assert ModelCard(content).data.pipeline_tag == "image-text-to-text"


def test_pushes_to_two_repositories_at_the_same_time_do_not_disturb_each_other(hub, trainer, card, tmp_path):
    save_adapter(trainer, tmp_path / "a", card=card)
    save_adapter(trainer, tmp_path / "b", card=card)
    threads = [
        threading.Thread(target=push_folder, args=(tmp_path / name, f"alice/{name}"), kwargs={"token": ALICE})
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert hub.files("alice/a").keys() == hub.files("alice/b").keys()
    assert "alice/a" in hub.files("alice/a")["README.md"].decode()
    assert "alice/b" in hub.files("alice/b")["README.md"].decode()


@pytest.mark.slow
def test_drawn_pushes_at_once_to_one_repository_leave_one_of_them_whole(hub, trainer, card, tmp_path):
    """Of two or three at once, each commits all its files or says why not; the last commit is one push's."""
    ends = Counter()
    for case in range(12):
        drawn = random.Random(case)
        name, folders = f"alice/race{case}", []
        for number in range(drawn.choice([2, 3])):
            folders.append(tmp_path / f"{case}-{number}")
            save_adapter(trainer, folders[-1], card=card)
            weights = folders[-1] / "adapter_model.safetensors"
            save_file({key: value + number for key, value in load_file(weights).items()}, weights)
        before = [(folder / "adapter_model.safetensors").read_bytes() for folder in folders]
        if drawn.random() < 0.5:
            hub.add(name, {"adapter_model.safetensors": b"older"})
        together = threading.Barrier(len(folders))

        def push_one(folder, name=name, together=together):
            together.wait()
            try:
                push_folder(folder, name, token=ALICE)
            except PushError as error:
                return str(error)
            return None

        with ThreadPoolExecutor(len(folders)) as pool:
            said = list(pool.map(push_one, folders))
        pushed = hub.files(name)["adapter_model.safetensors"]
        assert pushed in [weights for weights, why in zip(before, said, strict=True) if why is None]
        assert all("at the same time" in why for why in said if why), said
        assert problems(hub.files(name)["README.md"].decode()) == []
        assert [(folder / "adapter_model.safetensors").read_bytes() for folder in folders] == before
        ends.update("committed" if why is None else "refused" for why in said)
    assert ends["committed"] >= 12, ends


def test_a_push_that_another_one_overtakes_is_refused_and_nothing_is_lost(push, hub):
    push()
    weights = hub.files(REPO)["adapter_model.safetensors"]
    hub.faults.append(Fault("POST .*/commit/", before=lambda hub: put(hub, "# Somebody else's\n")))
    with pytest.raises(OSError, match="Somebody else pushed to alice/adapter at the same time"):
        push(card={"summary": "Another."})
    assert hub.files(REPO)["README.md"] == b"# Somebody else's\n"
    assert hub.files(REPO)["adapter_model.safetensors"] == weights


def put(hub, content):
    from tests.hub.repositories import Blob

    hub.repositories[REPO].commit("main", "by hand", "alice", {"README.md": Blob(content.encode(), False)})
