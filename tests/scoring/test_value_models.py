"""Value and reward models: what they load, compute, save, and how PEFT wraps them."""

import copy
import pickle

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from trl.experimental.utils import get_reward

from hf_vlm_rl import AutoVLMRewardModel, AutoVLMValueModel
from hf_vlm_rl.errors import CheckpointError, UnsupportedModelError
from tests.conformance.cases import ALL, mixture, native, one_image, two_images
from tests.conformance.saved import assert_same_weights, saved_with_other_weights
from tests.scoring.runs import TWO, ppo, rows_of

pytestmark = pytest.mark.ppo


def encoded(processing, rows, **kwargs):
    return processing.pad([processing.encode_prompt(row) for row in rows], return_tensors="pt", **kwargs)


def scores(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def assert_equal(found, expected):
    """Up to rounding: in float32, padding and the order of adapters move the last bits.

    A score is a sum of products of numbers of size 1 that may cancel, so it is rounded as a number of size 1.
    """
    scale = max(expected.abs().max().item(), 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("family", TWO)
def test_a_trainer_that_resumes_finds_its_saved_names(family, checkpoint, tmp_path):
    saved, weights = saved_with_other_weights(AutoVLMRewardModel, checkpoint(family), tmp_path)
    model = AutoVLMRewardModel.from_pretrained(checkpoint(family), dtype="float32")
    result = model.load_state_dict(weights, strict=False)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert_same_weights(model, saved)


@pytest.mark.parametrize("family", ALL)
def test_it_loads_a_chat_model_and_says_that_the_head_is_new(family, checkpoint, policy_for, bare_for):
    policy, bare = policy_for(family), bare_for(family)
    with pytest.warns(UserWarning, match=r"no score\.weight: it starts with random values"):
        model = AutoVLMValueModel.from_pretrained(
            checkpoint(family), dtype="float32", processing_class=policy.processing_class
        )
    assert model.processing_class is policy.processing_class
    stock = bare.base_model.state_dict()
    assert set(model.state_dict()) == {f"model.{name}" for name in stock} | {"score.weight"}
    assert all(torch.equal(model.model.state_dict()[name], value) for name, value in stock.items())
    assert type(model).__module__ == type(bare).__module__
    assert model.score.weight.abs().max() > 0


@pytest.mark.parametrize("family", ALL)
def test_the_score_is_read_at_the_last_token_on_either_side_of_the_padding(
    family, value_for, bare_for, native_processor_for
):
    model, bare, prompts = value_for(family), bare_for(family), mixture(family)
    left = scores(model, encoded(model.processing_class, prompts))
    right = scores(model, encoded(model.processing_class, prompts, padding_side="right"))
    with torch.no_grad():
        for row, prompt in enumerate(prompts):
            inputs = native(native_processor_for(family), [prompt])
            last = bare.base_model(**inputs).last_hidden_state[0, -1]
            assert_equal(left[row], model.score(last))
    assert_equal(left, right)


@pytest.mark.parametrize("family", ALL)
def test_it_saves_under_the_families_keys_and_loads_again(family, value_for, checkpoint, tmp_path):
    model = value_for(family)
    model.save_pretrained(tmp_path)
    model.processing_class.save_pretrained(tmp_path)
    kept = {name for name in load_file(checkpoint(family) / "model.safetensors") if "lm_head" not in name}
    assert set(load_file(tmp_path / "model.safetensors")) == kept | {"score.weight"}
    again = AutoVLMRewardModel.from_pretrained(tmp_path, dtype="float32").eval()
    assert all(torch.equal(again.state_dict()[name], value) for name, value in model.state_dict().items())
    batch = encoded(model.processing_class, [two_images()])
    assert torch.equal(scores(again, batch), scores(model, batch))
    assert again.config.architectures == [type(model).__name__]


def test_a_saved_model_keeps_its_number_of_labels(checkpoint, tmp_path):
    path = checkpoint("internvl")
    with pytest.warns(UserWarning, match=r"has no score\.weight"):
        model = AutoVLMRewardModel.from_pretrained(path, dtype="float32", num_labels=3)
    model.save_pretrained(tmp_path)
    model.processing_class.save_pretrained(tmp_path)
    again = AutoVLMRewardModel.from_pretrained(tmp_path, dtype="float32")
    assert torch.equal(again.score.weight, model.score.weight)
    assert again.config.num_labels == 3


@pytest.mark.parametrize("family", TWO)
def test_weights_that_are_missing_or_left_over_are_refused(family, value_for, tmp_path):
    model = value_for(family)
    model.save_pretrained(tmp_path)
    model.processing_class.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    layer = next(name for name in weights if "mlp" in name)
    save_file(
        {name: value for name, value in weights.items() if name != layer}, tmp_path / "model.safetensors"
    )
    with pytest.raises(CheckpointError, match=r"1 missing .*mlp.*0 left over"):
        AutoVLMValueModel.from_pretrained(tmp_path)
    save_file(weights | {"head.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"0 missing .*1 left over \(head\.weight\)"):
        AutoVLMValueModel.from_pretrained(tmp_path)


def test_a_processing_class_of_another_model_is_refused(policy_for, checkpoint):
    other = policy_for("qwen2_5_vl").processing_class
    with pytest.raises(ValueError, match=r"is a internvl model .* belongs to a qwen2_5_vl model"):
        AutoVLMValueModel.from_pretrained(checkpoint("internvl"), processing_class=other)


def test_an_adapter_is_refused(policy_for, tmp_path):
    policy = policy_for("internvl")
    get_peft_model(policy, policy.lora_config(r=4)).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"is an adapter\. Expected a chat model"):
        AutoVLMValueModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("family", TWO)
def test_copies_and_pickles_give_the_same_scores(family, value_for):
    model = value_for(family)
    batch = encoded(model.processing_class, [one_image()])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert torch.equal(scores(other, batch), scores(model, batch))
    assert copy.deepcopy(model).processing_class is model.processing_class


@pytest.mark.parametrize("family", TWO)
def test_an_adapter_with_its_head_saves_and_loads(family, value_for, tmp_path):
    model = get_peft_model(value_for(family), value_for(family).lora_config(r=4)).eval()
    trainable = {name for name, value in model.named_parameters() if value.requires_grad}
    assert any("score" in name for name in trainable)
    assert all("lora" in name or "score" in name for name in trainable)
    for name, parameter in model.named_parameters():
        if name in trainable:
            torch.nn.init.normal_(parameter, std=0.2)
    batch = encoded(value_for(family).processing_class, [one_image(), two_images()])
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(value_for(family), tmp_path).eval()
    assert_equal(scores(loaded, batch), scores(model, batch))
    # What PPO reads: the score at each position of the backbone's last hidden state.
    ids = torch.cat([batch["input_ids"], torch.full((2, 2), 20)], 1)
    _, found, _ = get_reward(model, ids, value_for(family).processing_class.pad_token_id, ids.shape[1] - 2)
    expected = scores(model, {"input_ids": ids, "attention_mask": ids != model.processing_class.pad_token_id})
    assert_equal(found, expected[:, 0])


@pytest.mark.parametrize("family", TWO)
def test_a_learned_reward_model_scores_completions_in_ppo(family, policy_for, value_for, tmp_path):
    policy, reward = policy_for(family), value_for(family)
    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, reward=reward)
    trainer.train()
    assert all(entry["objective/scores"] != 0 for entry in trainer.state.log_history)
