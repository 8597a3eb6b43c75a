"""The base of an adapter is known again by its weights, wherever it is loaded from."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig

from hf_vlm_rl import AutoVLMPolicy, CheckpointError
from hf_vlm_rl.families.tiny import write_checkpoint
from hf_vlm_rl.hub import save_adapter

from .models import FOUR, logits, quantised, random_adapter, write_adapter
from .test_reload import edit, load


@pytest.fixture
def projects(checkpoint, tmp_path, monkeypatch):
    """Two folders, each with a model of its own at `model`; the working directory is the first."""
    for name, seed in (("one", None), ("two", 5)):
        if seed is None:
            shutil.copytree(checkpoint("internvl"), tmp_path / name / "model")
        else:
            write_checkpoint("internvl", tmp_path / name / "model", seed=seed)
    monkeypatch.chdir(tmp_path / "one")
    return tmp_path


def test_a_base_by_a_relative_path_is_found_from_everywhere(projects, monkeypatch):
    policy = AutoVLMPolicy.from_pretrained("model", dtype="float32")
    write_adapter(policy, Path("adapter"))
    expected = logits(load("adapter"), load("adapter").processing_class)
    monkeypatch.chdir(projects / "two")
    again = load(projects / "one" / "adapter")
    assert torch.equal(logits(again, again.processing_class), expected)
    assert again.peft_config["default"].base_model_name_or_path == str(projects / "one" / "model")


def test_another_model_at_the_place_of_the_base_is_refused(projects, monkeypatch):
    write_adapter(AutoVLMPolicy.from_pretrained("model", dtype="float32"), Path("adapter"))
    edit(Path("adapter"), base_model_name_or_path="model")  # as earlier versions and plain PEFT write it
    load("adapter")
    monkeypatch.chdir(projects / "two")
    with pytest.raises(CheckpointError, match=r"other weights than those of .*two/model.*base_model="):
        load(projects / "one" / "adapter")
    with pytest.raises(CheckpointError, match="trained on other weights"):
        load(projects / "one" / "adapter", base_model=projects / "two" / "model")
    base = AutoVLMPolicy.from_pretrained("model", dtype="float32")
    PeftModel.from_pretrained(base, projects / "one" / "adapter")  # as the message says


def test_a_base_that_was_trained_further_is_another(checkpoint, tmp_path):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32")
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1 + 1e-5)
    directory = write_adapter(policy, tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="trained on other weights"):
        load(directory)


@pytest.mark.parametrize("target", ["q_proj", "o_proj", "down_proj"])
def test_an_adapter_of_a_merged_policy_is_none_of_the_base(target, checkpoint, tmp_path):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32")
    first = write_adapter(policy, tmp_path / "first", target=[target])
    merged = load(first, merge=True)
    second = save_adapter(random_adapter(merged, target=["v_proj"]), tmp_path / "second")[0].parent
    with pytest.raises(CheckpointError, match=r"names no base model\. Say which one it was"):
        load(second)
    assert "base_model:" not in (second / "README.md").read_text()
    with pytest.raises(OSError, match="Repo id must"):  # as trainers load a reference model
        AutoConfig.from_pretrained(merged.config.name_or_path)
    with pytest.raises(CheckpointError, match="trained on other weights"):
        load(second, base_model=checkpoint("internvl"))
    expected = logits(load(first, merge=True), load(first).processing_class)
    merged = load(first, merge=True)
    merged.save_pretrained(tmp_path / "merged")
    merged.processing_class.save_pretrained(tmp_path / "merged")
    model = load(second, base_model=tmp_path / "merged")
    with model.disable_adapter():
        assert torch.allclose(logits(model, model.processing_class), expected, rtol=0, atol=1e-5)


def test_a_merge_into_tied_weights_is_refused(checkpoint, tmp_path):
    path = checkpoint("gemma3")
    for target in ("lm_head", "embed_tokens"):
        policy = AutoVLMPolicy.from_pretrained(path, dtype="float32")
        directory = write_adapter(policy, tmp_path / target, target=["q_proj", target])
        expected = logits(load(directory), load(directory).processing_class)
        assert expected.isfinite().all()
        with pytest.raises(CheckpointError, match=rf"is on .*{target}, whose weight .* in another module"):
            load(directory, merge=True)
    # Modules that are saved whole and single tokens are merged as they are loaded.
    for saved in ({"modules_to_save": ["lm_head"]}, {"trainable_token_indices": [5, 6]}):
        policy = AutoVLMPolicy.from_pretrained(path, dtype="float32")
        directory = write_adapter(policy, tmp_path / next(iter(saved)), target=["q_proj"], **saved)
        expected = logits(load(directory), load(directory).processing_class)
        merged = load(directory, merge=True)
        assert torch.allclose(logits(merged, merged.processing_class), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("trained", ["float32", "bfloat16", "float16", "4 bits"])
@pytest.mark.parametrize("loaded", ["float32", "bfloat16", "float16", "4 bits"])
def test_the_same_base_in_another_precision_is_the_same(trained, loaded, checkpoint, tmp_path):
    def of(precision):
        path = checkpoint("internvl")
        if precision == "4 bits":
            return quantised(path, FOUR)
        return AutoVLMPolicy.from_pretrained(path, dtype=precision)

    if "4 bits" in (trained, loaded):
        pytest.importorskip("bitsandbytes", reason="the extra `quant` is not installed")
    directory = write_adapter(of(trained), tmp_path / "adapter")
    recorded = json.loads((directory / "adapter_config.json").read_text())["auto_mapping"]["base_weights"]
    assert len(recorded) > 8
    assert not any("language_model.layers.1." in name for name in recorded)  # one layer stands for its kind
    options = {"quantization_config": of(loaded).config.quantization_config} if loaded == "4 bits" else {}
    load(directory, **{"dtype": "float32" if loaded == "4 bits" else loaded} | options)
