"""Adapters that are damaged, of another model, or do nothing: errors that say which and what to do."""

import json
import shutil

import pytest
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy, CheckpointError, UnsupportedModelError

from .hub_cache import add_commit, commit
from .models import FOUR, write_adapter
from .test_reload import edit, load

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def own_adapter(adapter_of, tmp_path):
    """A copy of the InternVL adapter, to damage."""
    return shutil.copytree(adapter_of("internvl"), tmp_path / "adapter")


def change(directory, function):
    """Rewrite the weights by a function from tensors to tensors."""
    save_file(function(load_file(directory / WEIGHTS)), directory / WEIGHTS, metadata={"format": "pt"})


def pickled(directory):
    torch.save(load_file(directory / WEIGHTS), directory / "adapter_model.bin")
    (directory / WEIGHTS).unlink()


def truncated(directory):
    data = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(data[: len(data) // 2])


def without_first(tensors):
    return dict(sorted(tensors.items())[1:])


def with_one_more(tensors):
    return tensors | {
        "base_model.model.model.language_model.layers.9.mlp.up_proj.lora_A.weight": torch.ones(2, 2)
    }


def zeroed(tensors):
    return {key: value * ("lora_B" not in key) for key, value in tensors.items()}


def infinite(tensors):
    return {key: value / 0 for key, value in tensors.items()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (pickled, r"adapter_model\.bin, a pickle: .*save_file\(torch\.load\("),
        (truncated, r"adapter_model\.safetensors is damaged or truncated"),
        (lambda d: (d / WEIGHTS).write_bytes(b""), r"adapter_model\.safetensors is damaged or truncated"),
        (lambda d: (d / WEIGHTS).unlink(), r"no adapter_model\.safetensors"),
        (lambda d: (d / "adapter_config.json").write_text("{"), r"adapter_config\.json cannot be read"),
        (lambda d: (d / "adapter_config.json").write_text("[]"), r"adapter_config\.json cannot be read"),
        (lambda d: edit(d, peft_type="NEW"), r"adapter_config\.json cannot be read .*NEW"),
        (lambda d: change(d, without_first), "0 tensors of the adapter .* 1 tensors .*lora_A"),
        (lambda d: change(d, with_one_more), r"1 tensors \(.*layers\.9\.mlp.* 0 tensors of the model"),
        (lambda d: change(d, infinite), "not finite"),
        (lambda d: change(d, zeroed), "changes nothing: .* trainable=True loads it"),
        (lambda d: edit(d, lora_alpha=0), "changes nothing"),
        (lambda d: edit(d, base_model_name_or_path=None), r"names no base model.*base_model="),
        (
            lambda d: edit(d, base_model_name_or_path="/no/where"),
            r"'/no/where', a directory that is not here",
        ),
        (lambda d: edit(d, base_model_name_or_path="no/where"), r"'no/where', cannot be read.*base_model="),
        (
            lambda d: edit(d, base_model_name_or_path="no/where", revision="v2"),
            r"'no/where' at revision 'v2'",
        ),
        (lambda d: edit(d, base_model_name_or_path=str(d)), r"cannot be read: .* is a PEFT adapter"),
    ],
)
def test_a_damaged_adapter_is_refused(damage, message, own_adapter):
    damage(own_adapter)
    with pytest.raises(CheckpointError, match=f"(?s){message}") as raised:
        load(own_adapter)
    assert str(own_adapter) in str(raised.value)


def test_an_untrained_adapter_can_be_trained(own_adapter):
    change(own_adapter, zeroed)
    with pytest.warns(UserWarning, match="changes nothing"):
        model = load(own_adapter, trainable=True)
    assert any(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("base", ["llava", "idefics3", "qwen2_5_vl"])
def test_an_adapter_of_another_family_names_both(base, own_adapter, checkpoint):
    with pytest.raises(CheckpointError, match="do not fit") as raised:
        load(own_adapter, base_model=checkpoint(base))
    names = (str(own_adapter), "InternVLForConditionalGeneration", str(checkpoint(base)), base)
    assert all(name in str(raised.value) for name in names)


@pytest.mark.parametrize("base", ["idefics3", "smolvlm"])
def test_modules_of_another_name_tell_the_family_too(base, own_adapter, checkpoint):
    edit(own_adapter, auto_mapping=None)  # what plain PEFT writes
    with pytest.raises(CheckpointError, match=f"do not fit: Target modules .*{base}|{base}.* do not fit"):
        load(own_adapter, base_model=checkpoint(base))


@pytest.mark.parametrize("target", ["language", "all"])
def test_an_adapter_of_another_width_names_both(target, policy_for, checkpoint, tmp_path):
    directory = write_adapter(policy_for("internvl"), tmp_path / "adapter", target=target)
    change(
        directory,
        lambda tensors: {
            key: torch.cat([value, value], dim=1) if "language_model" in key and "lora_A" in key else value
            for key, value in tensors.items()
        },
    )
    with pytest.raises(CheckpointError, match=r"size mismatch for .*lora_A.*\[4, 128\].*\[4, 64\]") as raised:
        load(directory)
    assert str(directory) in str(raised.value)
    assert str(checkpoint("internvl")) in str(raised.value)


def test_a_module_saved_whole_that_is_missing_is_named(policy_for, tmp_path):
    directory = write_adapter(policy_for("internvl"), tmp_path, modules_to_save=["projector"])
    change(directory, lambda tensors: {k: v for k, v in tensors.items() if "linear_1.bias" not in k})
    with pytest.raises(CheckpointError, match=r"multi_modal_projector\.linear_1\.bias"):
        load(directory)


def test_a_module_saved_whole_counts_as_an_effect_only_where_it_differs(policy_for, tmp_path):
    options = {"init_lora_weights": True, "modules_to_save": ["projector"]}
    directory = write_adapter(policy_for("internvl"), tmp_path, **options)
    with pytest.raises(CheckpointError, match="changes nothing"):
        load(directory)
    change(directory, lambda tensors: {k: v + ("linear_1.bias" in k) for k, v in tensors.items()})
    load(directory)


@pytest.mark.parametrize("family", ["internvl", "paligemma"])
@pytest.mark.parametrize("trained", [False, True])
def test_an_effect_that_the_weights_do_not_tell_is_seen_in_a_forward(trained, family, policy_for, tmp_path):
    policy = policy_for(family)
    tower = [
        name for name in policy.lora_config(target="all").target_modules if "vision" in name and "fc1" in name
    ]
    model = get_peft_model(policy, IA3Config(target_modules=tower, feedforward_modules=[]))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if trained and "ia3_l" in name:
                weight.mul_(2)
    model.save_pretrained(tmp_path)
    if trained:
        load(tmp_path)
    else:
        with pytest.raises(CheckpointError, match="changes nothing"):
            load(tmp_path)


@pytest.mark.parametrize("trained", [False, True])
def test_a_magnitude_of_dora_is_an_effect(trained, policy_for, tmp_path):
    directory = write_adapter(policy_for("internvl"), tmp_path, use_dora=True, init_lora_weights=True)
    if trained:
        change(directory, lambda tensors: {k: v * (1 + ("magnitude" in k)) for k, v in tensors.items()})
        load(directory)
    else:
        with pytest.raises(CheckpointError, match="changes nothing"):
            load(directory)


def test_the_processor_of_another_model_is_refused(own_adapter, policy_for):
    policy_for("llava").processing_class.save_pretrained(own_adapter)
    with pytest.raises(CheckpointError, match=r"LlavaProcessor with .*\(internvl\) .* image token is 404"):
        load(own_adapter)


def test_an_adapter_of_the_prompt_is_refused(policy_for, tmp_path):
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(policy_for("internvl"), config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"PROMPT_TUNING adapter.*LORA.*in place of the ids"):
        load(tmp_path)


def test_an_adapter_of_a_reward_model_is_refused(own_adapter):
    edit(own_adapter, task_type="SEQ_CLS")
    with pytest.raises(UnsupportedModelError, match="AutoVLMRewardModel"):
        load(own_adapter)


def test_a_base_at_another_commit_is_refused_unless_asked_for(own_adapter, checkpoint, tmp_path):
    add_commit(tmp_path, "me/base", commit(2), checkpoint("internvl"))
    edit(own_adapter, base_model_name_or_path="you/base", revision=commit(1))
    with pytest.raises(CheckpointError, match=rf"commit {commit(1)} of 'you/base'.* is at {commit(2)}"):
        load(own_adapter, base_model="me/base", cache_dir=tmp_path)
    load(own_adapter, base_model="me/base", base_revision=commit(2), cache_dir=tmp_path)


def test_a_base_that_is_an_adapter_is_refused(own_adapter, adapter_of):
    with pytest.raises(CheckpointError, match=r"llava.* is a PEFT adapter\. Expected a model"):
        load(own_adapter, base_model=adapter_of("llava"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"merge": True, "trainable": True}, "merge=True and trainable=True"),
        ({"merge": True, "quantization_config": BitsAndBytesConfig(**FOUR)}, "quantised weights"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments, message, adapter_of):
    with pytest.raises(ValueError, match=message):
        load(adapter_of("internvl"), **arguments)


@pytest.mark.parametrize("argument", [{"merge": True}, {"trainable": True}, {"base_model": "me/base"}])
def test_arguments_for_adapters_are_refused_with_a_model(argument, checkpoint):
    with pytest.raises(ValueError, match=f"Got {next(iter(argument))} for .* no adapter_config.json"):
        load(checkpoint("internvl"), **argument)


def test_nothing_is_loaded_before_the_adapter_was_looked_at(own_adapter, monkeypatch):
    truncated(own_adapter)
    edit(own_adapter, base_model_name_or_path="/no/where")
    with pytest.raises(CheckpointError, match="truncated"):
        AutoVLMPolicy.from_pretrained(own_adapter)
    assert isinstance(json.loads((own_adapter / "adapter_config.json").read_text()), dict)
    assert LoraConfig.from_pretrained(own_adapter).r == 4
