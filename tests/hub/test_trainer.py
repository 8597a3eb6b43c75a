"""`trainer.push_to_hub()` of stock trainers."""

import pytest
from huggingface_hub import ModelCard

from hf_vlm_rl.hub import push_with_card
from tests.hub.conftest import BASE
from tests.hub.server import ALICE
from tests.trainers.runs import grpo, mixture

pytestmark = pytest.mark.trl


@pytest.fixture
def stock(policy_for, hub, tmp_path):
    """`stock(**options)`: a trainer that has not trained, with the token in its arguments."""

    def make(**options):
        policy = policy_for("internvl")
        policy.config._name_or_path = BASE
        options |= {"peft": policy.lora_config(r=4), "hub_token": ALICE}
        return grpo(policy, mixture("internvl"), tmp_path / "out", **options)

    return make


def test_push_to_hub_of_that_trainer_pushes_our_folder_and_card(stock, hub):
    trainer = push_with_card(stock(hub_model_id="alice/adapter"), card={"summary": "Sees."})
    info = trainer.push_to_hub(commit_message="Done")
    files = hub.files("alice/adapter")
    assert hub.repositories["alice/adapter"].head().message == "Done"
    assert info.oid == hub.repositories["alice/adapter"].head().oid
    assert "training_args.bin" not in files
    card = ModelCard(files["README.md"].decode())
    assert card.data.pipeline_tag == "image-text-to-text"
    assert "Sees." in card.text


def test_the_arguments_of_the_trainer_are_the_defaults(stock, hub):
    options = {"hub_model_id": "alice/adapter", "hub_private_repo": True, "hub_revision": "experiment"}
    push_with_card(stock(**options)).push_to_hub()
    assert hub.repositories["alice/adapter"].private
    assert "README.md" in hub.files("alice/adapter", "experiment")


def test_what_was_given_beside_the_card_counts_more_than_the_trainers_arguments_and_less_than_the_call(
    stock, hub
):
    trainer = stock(hub_model_id="alice/adapter", hub_revision="experiment", hub_private_repo=False)
    push_with_card(trainer, revision="mine", private=True, commit_message="Given").push_to_hub()
    assert hub.repositories["alice/adapter"].private
    assert hub.repositories["alice/adapter"].head("mine").message == "Given"
    trainer.push_to_hub(commit_message="Called", revision="called")
    assert hub.repositories["alice/adapter"].head("called").message == "Called"


def test_without_an_id_the_repository_is_called_like_the_output_directory(stock, hub):
    push_with_card(stock()).push_to_hub()
    assert "README.md" in hub.files("alice/out")


def test_save_model_of_a_trainer_that_pushes_pushes_our_folder(stock, hub):
    trainer = push_with_card(stock(push_to_hub=True, hub_strategy="end", hub_model_id="alice/adapter"))
    trainer.save_model()
    assert "training_args.bin" not in hub.files("alice/adapter")
    assert ModelCard(hub.files("alice/adapter")["README.md"].decode()).data.base_model == BASE


def test_a_trainer_that_uploads_checkpoints_by_itself_is_refused(stock):
    trainer = stock(push_to_hub=True, hub_model_id="alice/adapter")
    with pytest.raises(ValueError, match="Set hub_strategy='end'"):
        push_with_card(trainer)


def test_other_trainers_are_left_alone(stock):
    first, second = stock(), stock()
    push_with_card(first)
    assert second.push_to_hub.__func__ is type(second).push_to_hub


def test_what_the_stock_call_takes_for_its_own_card_is_refused(stock):
    with pytest.raises(ValueError, match="Got tasks for push_to_hub"):
        push_with_card(stock(hub_model_id="alice/adapter")).push_to_hub(tasks="vqa")
