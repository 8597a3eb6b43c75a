"""An adapter's directory or Hub id is enough: base, revision and processor are found."""

import copy
import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy, VLMPolicy
from hf_vlm_rl.families.tiny import FAMILIES, write_checkpoint

from .hub_cache import add_commit, commit
from .models import CAT, FOUR, encoded, kinds, logits, write_adapter

SHORT = {"max_new_tokens": 4, "do_sample": False}


def load(directory, **kwargs):
    return AutoVLMPolicy.from_pretrained(directory, **{"dtype": "float32"} | kwargs)


def edit(directory, **entries):
    """Change entries of an adapter_config.json."""
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.fixture
def own_adapter(adapter_of, tmp_path):
    """A copy of the InternVL adapter, to change."""
    return shutil.copytree(adapter_of("internvl"), tmp_path / "adapter")


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_plain_peft_on_the_bare_model(family, adapter_of, bare_for, native_processor_for):
    model = load(adapter_of(family))
    native = native_processor_for(family)
    bare = bare_for(family)
    base = logits(bare, native)
    expected = logits(PeftModel.from_pretrained(bare, adapter_of(family)), native)
    assert torch.allclose(logits(model, model.processing_class), expected, atol=1e-5)
    assert torch.allclose(logits(model, native), expected, atol=1e-5)  # pixels as well as tickets
    assert (expected - base).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_policy_computes_the_same_and_is_saved_as_the_bare_model(
    family, adapter_of, checkpoint, native_processor_for, tmp_path
):
    model = load(adapter_of(family))
    expected = logits(model, model.processing_class)
    policy = load(adapter_of(family), merge=True)
    assert isinstance(policy, VLMPolicy)
    assert not isinstance(policy, PeftModel)
    assert torch.allclose(logits(policy, policy.processing_class), expected, atol=1e-4)
    policy.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(
        load_file(checkpoint(family) / "model.safetensors")
    )
    configs = [json.loads((path / "config.json").read_text()) for path in (tmp_path, checkpoint(family))]
    assert configs[0] == configs[1]
    bare = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert torch.allclose(logits(bare, native_processor_for(family)), expected, atol=1e-4)


def test_the_model_is_ready_to_answer(adapter_of):
    model = load(adapter_of("internvl"))
    assert isinstance(model, PeftModel)
    assert isinstance(model.get_base_model(), VLMPolicy)
    assert not any(module.training for module in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())
    answer = model.chat("What is it?", CAT, **SHORT)
    prompt = model.processing_class.encode_prompt([{"role": "user", "content": "What is it?"}], [CAT])
    ids = torch.tensor([prompt["input_ids"]])
    output = model.generate(input_ids=ids, **SHORT)[0, ids.shape[1] :]
    assert model.processing_class.decode(output, skip_special_tokens=True).strip() == answer
    with model.disable_adapter():
        assert model.chat("What is it?", CAT, **SHORT) != answer
    assert model.merge_and_unload().chat("What is it?", CAT, **SHORT) == answer


def test_a_trainable_adapter_has_gradients_and_the_base_has_none(adapter_of):
    model = load(adapter_of("internvl"), trainable=True)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 14
    assert all("lora_" in name for name in trained)


@pytest.mark.parametrize(
    "options", [{"use_dora": True}, {"target": "all"}, {"modules_to_save": ["projector"]}]
)
def test_other_adapters_load_as_well(options, policy_for, bare_for, native_processor_for, tmp_path):
    directory = write_adapter(policy_for("qwen3_vl"), tmp_path, **options)
    model, native, bare = load(directory), native_processor_for("qwen3_vl"), bare_for("qwen3_vl")
    base = logits(bare, native)
    expected = logits(PeftModel.from_pretrained(bare, directory), native)
    assert torch.allclose(logits(model, model.processing_class), expected, atol=1e-5)
    with model.disable_adapter():  # features that an adapter made are not kept for the base
        assert torch.allclose(logits(model, model.processing_class), base, atol=1e-5)
    assert torch.allclose(logits(model.merge_and_unload(), native), expected, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_processor_beside_the_adapter_encodes_as_the_bases(family, adapter_of, policy_for, tmp_path):
    processor = policy_for(family).processing_class
    directory = shutil.copytree(adapter_of(family), tmp_path / "adapter")
    processor.save_pretrained(directory)
    own = load(directory).processing_class
    assert own is not processor
    given, expected = encoded(own), encoded(processor)
    assert set(given) == set(expected)
    assert all(torch.equal(given[key], expected[key]) for key in expected)


def test_the_adapters_own_processor_is_preferred(policy_for, tmp_path):
    policy = policy_for("internvl")
    policy.processing_class.tokenizer.padding_side = "left"
    directory = write_adapter(policy, tmp_path, processor=True)
    assert load(directory, max_tiles=2).processing_class.image_processor.max_patches == 2
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ 'Answer:' }}" + path.read_text())
    prompt = load(directory).processing_class.apply_chat_template([{"role": "user", "content": "Hm?"}])
    assert prompt.startswith("Answer:")


def test_without_one_the_base_has_the_processor(adapter_of):
    assert not (adapter_of("internvl") / "processor_config.json").exists()
    prompt = load(adapter_of("internvl")).processing_class.apply_chat_template(
        [{"role": "user", "content": "Hm?"}]
    )
    assert not prompt.startswith("Answer:")


def test_a_quantised_base_takes_the_adapter(adapter_of):
    model = load(adapter_of("internvl"), quantization_config=BitsAndBytesConfig(**FOUR))
    layers = [module for module in model.modules() if type(module).__name__ == "Linear4bit"]
    assert layers
    assert kinds(model.get_base_model())["vision"] == {"Linear"}
    close = logits(model, model.processing_class)
    assert (close - logits(load(adapter_of("internvl")), model.processing_class)).abs().max() > 0


def test_a_base_path_counts_from_here_or_from_the_adapter(own_adapter, checkpoint, tmp_path, monkeypatch):
    expected = logits(load(own_adapter), load(own_adapter).processing_class)
    shutil.copytree(checkpoint("internvl"), tmp_path / "base")
    edit(own_adapter, base_model_name_or_path="../base")
    model = load(own_adapter)  # beside the adapter
    assert torch.equal(logits(model, model.processing_class), expected)
    edit(own_adapter, base_model_name_or_path="base")
    monkeypatch.chdir(tmp_path)  # where the trainer was started
    model = load(own_adapter)
    assert torch.equal(logits(model, model.processing_class), expected)


@pytest.mark.parametrize("base", ["of its own", "itself"])
def test_beside_a_model_an_adapter_is_still_an_adapter(base, own_adapter, checkpoint):
    expected = logits(load(own_adapter), load(own_adapter).processing_class)
    shutil.copytree(checkpoint("internvl"), own_adapter, dirs_exist_ok=True)
    if base == "itself":
        edit(own_adapter, base_model_name_or_path=str(own_adapter))
    model = load(own_adapter)
    assert isinstance(model, PeftModel)
    assert torch.equal(logits(model, model.processing_class), expected)


def test_a_base_that_moved_is_named(own_adapter, checkpoint):
    expected = logits(load(own_adapter), load(own_adapter).processing_class)
    edit(own_adapter, base_model_name_or_path="/gone/for/good")
    model = load(own_adapter, base_model=checkpoint("internvl"))
    assert torch.equal(logits(model, model.processing_class), expected)
    assert model.peft_config["default"].base_model_name_or_path == str(checkpoint("internvl"))


@pytest.fixture(scope="module")
def cache(checkpoint, adapter_of, _loaded_policy, tmp_path_factory):
    """A Hub cache: a base whose main branch went on, and two versions of an adapter of its first commit."""
    root = tmp_path_factory.mktemp("hub")
    add_commit(root, "me/base", commit(1), checkpoint("internvl"), branch=None)
    add_commit(root, "me/base", commit(2), write_checkpoint("internvl", root / "later", seed=1))
    for number, subfolder in ((3, "."), (4, "nested")):
        folder = root / f"files-{number}"
        shutil.copytree(adapter_of("internvl"), folder / subfolder)
        edit(folder / subfolder, base_model_name_or_path="me/base", revision=commit(1))
        if subfolder == "nested":
            processor = copy.deepcopy(_loaded_policy("internvl").processing_class)
            processor.chat_template = "{{ 'Answer:' }}" + processor.chat_template
            processor.save_pretrained(folder / subfolder)
        add_commit(root, "me/adapter", commit(number), folder, branch="main" if number == 3 else "next")
    return root


def test_a_hub_id_is_loaded_with_the_revision_of_the_base_it_was_trained_on(cache, adapter_of):
    expected = load(adapter_of("internvl"))
    model = load("me/adapter", cache_dir=cache)
    assert torch.equal(logits(model, model.processing_class), logits(expected, expected.processing_class))
    config = model.peft_config["default"]
    assert (config.base_model_name_or_path, config.revision) == ("me/base", commit(1))


def test_revision_and_subfolder_are_the_adapters_own(cache, adapter_of):
    expected = load(adapter_of("internvl"))
    model = load("me/adapter", cache_dir=cache, revision="next", subfolder="nested")
    ours = expected.processing_class
    assert torch.equal(logits(model, ours), logits(expected, ours))
    prompt = model.processing_class.apply_chat_template([{"role": "user", "content": "Hm?"}])
    assert prompt == "Answer:" + ours.apply_chat_template([{"role": "user", "content": "Hm?"}])


def test_another_revision_of_the_base_can_be_asked_for(cache, adapter_of):
    base = AutoVLMPolicy.from_pretrained(cache / "later", dtype="float32")
    expected = PeftModel.from_pretrained(base, adapter_of("internvl"))
    model = load("me/adapter", cache_dir=cache, base_revision="main")
    assert torch.equal(logits(model, model.processing_class), logits(expected, expected.processing_class))
    assert model.peft_config["default"].revision == "main"


def test_a_base_in_an_original_format_keeps_its_own_processor(tmp_path):
    """What is saved of it resizes with torchvision, which is not quite what the original does."""
    from tests.loading.internvl_chat.originals import write_original

    write_original(tmp_path / "original", {"architectures": ["InternLM2ForCausalLM"], "bias": True})
    policy = load(tmp_path / "original")
    directory = write_adapter(policy, tmp_path / "adapter", processor=True)
    expected = logits(policy, policy.processing_class)
    model = load(directory)
    assert torch.allclose(logits(model, model.processing_class), expected, atol=1e-5)
