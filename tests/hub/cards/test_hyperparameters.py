"""Training arguments that are published."""

import dataclasses

import pytest
from trl import DPOConfig, GRPOConfig

from hf_vlm_rl.hub.cards.hyperparameters import shareable, telling

SECRET = "hf_" + "s" * 34


@pytest.mark.parametrize("config", [GRPOConfig, DPOConfig])
def test_no_argument_of_a_trainer_lets_a_string_through_that_could_be_private(config, tmp_path):
    arguments = config(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    for item in dataclasses.fields(arguments):
        if isinstance(getattr(arguments, item.name), str) or item.name.endswith(("_dir", "_path")):
            setattr(arguments, item.name, "/data/mine")
    assert "/data/mine" not in repr(shareable(arguments))


@pytest.mark.parametrize(
    "name", ["hub_token", "hub_model_id", "run_name", "vllm_server_host", "trackio_space_id"]
)
def test_names_and_tokens_are_left_out_whatever_they_look_like(name, tmp_path):
    arguments = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    if not hasattr(arguments, name):
        pytest.skip(f"this TRL has no {name}")
    setattr(arguments, name, SECRET)
    assert name not in shareable(arguments)


def test_a_card_shows_the_main_arguments_and_those_that_were_changed(tmp_path):
    changed = {"epsilon_high": 0.28, "max_steps": 10, "save_steps": 7}
    shown = telling(GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **changed))
    assert next(iter(shown)) == "learning_rate"
    assert (shown["max_steps"], shown["epsilon_high"]) == (10, 0.28)
    assert not {"num_train_epochs", "save_steps", "top_p", "output_dir"} & set(shown)
