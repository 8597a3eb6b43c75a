"""The policy object: LoRA targets, freezing, copies and the files it saves."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from peft import get_peft_model
from torch import nn

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.cases import one_image
from tests.processing.prompts import CAT, user

PROJECTED = ("internvl", "qwen2_5_vl", "qwen3_vl", "llava", "gemma3", "idefics3")


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def policy(policy_for, family):
    return policy_for(family)


def below(policy, *paths) -> set[str]:
    """Names of the linear layers below modules."""
    return {
        name
        for path in paths
        for name, module in policy.named_modules()
        if isinstance(module, nn.Linear) and (name == path or name.startswith(path + "."))
    }


def test_lora_targets_every_linear_layer_of_the_decoder_and_no_other(policy):
    targets = set(policy.lora_config().target_modules)
    assert targets == below(policy, policy.family.language)
    # In each layer q, k, v, o, gate, up and down.
    assert len(targets) == 7 * policy.config.get_text_config().num_hidden_layers
    assert not any("lm_head" in name or "embed" in name for name in targets)


def test_lora_targets_projector_and_tower_on_request(policy):
    family = policy.family
    if family.model_type == "gemma3":
        pytest.skip("gemma3's projector is a bare weight without a linear layer to adapt")
    decoder, projector = below(policy, family.language), below(policy, *family.projector)
    assert projector
    assert set(policy.lora_config(target="language+projector").target_modules) == decoder | projector
    everything = decoder | projector | below(policy, *family.vision)
    assert set(policy.lora_config(target="all").target_modules) == everything
    assert len(everything) > len(decoder | projector)


def test_lora_targets_can_be_names(policy_for):
    policy = policy_for("internvl")
    assert set(policy.lora_config(target=["q_proj", "v_proj"]).target_modules) == {"q_proj", "v_proj"}
    assert set(policy.lora_config(target=("q_proj",)).target_modules) == {"q_proj"}


def test_an_unknown_lora_part_is_refused(policy):
    with pytest.raises(ValueError, match=r"Got target='vision'. Expected one of \('language', 'language\+"):
        policy.lora_config(target="vision")


def test_lora_options_reach_peft_and_alpha_follows_the_rank(policy):
    config = policy.lora_config(r=4, lora_dropout=0.1)
    assert (config.r, config.lora_alpha, config.lora_dropout, config.task_type) == (4, 8, 0.1, "CAUSAL_LM")
    config = policy.lora_config(4, lora_alpha=5, task_type=None)
    assert (config.lora_alpha, config.task_type) == (5, None)


def test_peft_trains_the_decoder_only(policy):
    wrapped = get_peft_model(policy, policy.lora_config(r=2))
    trained = [name for name, parameter in wrapped.named_parameters() if parameter.requires_grad]
    assert len(trained) == 2 * 7 * policy.config.get_text_config().num_hidden_layers
    assert all(policy.family.language in name for name in trained)


def trainable(policy, *paths) -> set[bool]:
    found = {name: parameter.requires_grad for name, parameter in policy.named_parameters()}
    return {value for name, value in found.items() if name.startswith(paths)}


@pytest.mark.parametrize("family", PROJECTED, indirect=True)
@pytest.mark.parametrize("vision", [True, False])
@pytest.mark.parametrize("projector", [True, False])
def test_freezing_stops_the_chosen_parts_and_no_other(policy, vision, projector):
    assert policy.freeze(vision=vision, projector=projector) is policy
    own = policy.family.projector
    assert trainable(policy, *own) == {not projector}
    tower = [
        parameter.requires_grad
        for name, parameter in policy.named_parameters()
        if name.startswith(policy.family.vision) and not name.startswith(own)
    ]
    assert set(tower) == {not vision}
    assert trainable(policy, policy.family.language) == {True}


def test_freezing_without_a_word_stops_tower_and_projector(policy):
    policy.freeze()
    assert trainable(policy, *policy.family.vision, *policy.family.projector) == {False}
    assert trainable(policy, policy.family.language) == {True}


def logits(policy, prompt) -> torch.Tensor:
    with torch.no_grad():
        return policy(input_ids=torch.tensor([prompt["input_ids"]])).logits


def test_a_deep_copy_is_a_policy_with_weights_of_its_own(policy):
    twin = copy.deepcopy(policy)
    assert type(twin) is type(policy)
    assert type(twin.base_model) is type(policy.base_model)
    assert twin.processing_class is policy.processing_class
    prompt = policy.processing_class.encode_prompt(user(CAT, "what is it?"))
    assert torch.equal(logits(twin, prompt), logits(policy, prompt))
    before = logits(policy, prompt)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.1)
    assert torch.equal(logits(policy, prompt), before)
    assert not torch.allclose(logits(twin, prompt), before)


SHARES = """
import sys, torch
policy, batch = torch.load(sys.argv[1], weights_only=False)
with torch.no_grad():
    policy(**batch, use_cache=False)
report = policy.sharing_report()
assert report["not_shared"] == {} and report["tokens_computed"] < report["tokens"], report
"""


def test_a_policy_that_another_process_loads_shares_prompts(policy_for, tmp_path):
    policy = policy_for("internvl")
    policy.base_model.sharing.mode = True
    rows = [policy.processing_class.encode_prompt(one_image()) for _ in range(2)]  # keeps images on disk
    batch = dict(policy.processing_class.pad(rows, return_tensors="pt"))
    torch.save((policy, batch), tmp_path / "policy.pt")
    subprocess.run([sys.executable, "-c", SHARES, str(tmp_path / "policy.pt")], check=True)


@pytest.mark.parametrize("mode", [0, 1, 0.0, np.False_, "on", None])
def test_modes_of_sharing_are_three(policy_for, mode):
    with pytest.raises(ValueError, match="Expected 'auto', True or False"):
        AutoVLMPolicy.from_pretrained(policy_for("internvl").name_or_path, sharing=mode)


def test_a_pickled_policy_computes_the_same(policy):
    prompt = policy.processing_class.encode_prompt(user(CAT, "what is it?"))
    other = pickle.loads(pickle.dumps(policy))
    assert type(other) is type(policy)
    assert list(other.state_dict()) == list(policy.state_dict())
    assert torch.equal(logits(other, prompt), logits(policy, prompt))


def test_a_policy_survives_torch_save(policy, tmp_path):
    torch.save(policy, tmp_path / "policy.pt")
    loaded = torch.load(tmp_path / "policy.pt", weights_only=False)
    prompt = loaded.processing_class.encode_prompt(user(CAT, "what is it?"))
    assert torch.equal(logits(loaded, prompt), logits(policy, prompt))


def test_saved_configs_are_those_of_the_stock_model(policy, bare_for, family, tmp_path):
    bare = bare_for(family)
    policy.save_pretrained(tmp_path / "ours")
    bare.save_pretrained(tmp_path / "stock")
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "stock" / name).read_bytes()
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in ("ours", "stock")]
    assert names[0] == names[1]


def test_the_type_carries_the_stock_name_and_module(policy, bare_for, family):
    bare = bare_for(family)
    for ours, stock in ((policy, bare), (policy.base_model, bare.base_model)):
        assert (type(ours).__name__, type(ours).__module__) == (type(stock).__name__, type(stock).__module__)
        assert type(ours) is not type(stock)
        assert isinstance(ours, type(stock))
    assert [name for name, _ in policy.named_modules()] == [name for name, _ in bare.named_modules()]
    assert [name for name, _ in policy.named_buffers()] == [name for name, _ in bare.named_buffers()]


def test_placeholders_are_never_sampled(policy):
    processing = policy.processing_class
    assert processing.codec.placeholder_id in policy.placeholder_ids
    head = policy.get_output_embeddings()
    bias = torch.zeros(head.out_features)
    bias[list(policy.placeholder_ids)] = 1e6  # what the model would answer with, left alone
    head.bias = nn.Parameter(bias)
    prompt = torch.tensor([processing.encode_prompt(user(CAT, "what is it?"))["input_ids"]])
    output = policy.generate(input_ids=prompt, max_new_tokens=4, do_sample=False)
    assert torch.equal(output[:, : prompt.shape[1]], prompt)
    assert not set(output[0, prompt.shape[1] :].tolist()) & set(policy.placeholder_ids)
