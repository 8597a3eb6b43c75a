"""The check of a derived family: what it lets through, what it catches, and what it keeps."""

import copy
import dataclasses
import functools
import importlib
import json
import shutil

import pytest
import torch
import transformers

from hf_vlm_rl import AutoVLMPolicy, ImageStore
from hf_vlm_rl.errors import SelfCheckError
from hf_vlm_rl.loading import self_check
from hf_vlm_rl.loading.checkpoint import read_checkpoint
from hf_vlm_rl.loading.meta import policy_on_meta
from hf_vlm_rl.loading.self_check import check_family, compare, stock_batch_effect
from tests.conformance.cases import tickets, user
from tests.images import photo


@pytest.fixture(autouse=True)
def verdicts(tmp_path, monkeypatch):
    """An empty place for verdicts."""
    monkeypatch.setenv("HF_VLM_RL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "families"


@pytest.fixture
def load(checkpoint):
    return lambda model_type, **kwargs: AutoVLMPolicy.from_pretrained(checkpoint(model_type), **kwargs)


def differences(policy) -> dict[str, float]:
    return {clause: difference for clause, difference, allowed in compare(policy) if difference > allowed}


def with_family(policy, **changes):
    """The policy with another row."""
    state = copy.copy(policy.processing_class.state)
    state.family = dataclasses.replace(state.family, **changes)
    policy.processing_class.state = state
    return policy


# What was once silently wrong in three classes: the row that the mechanism replaces.
WRONG = {
    "minicpmv4_7": {"companions": (), "grids": False},
    "molmo2": {"token_types": ()},
    "ernie4_5_vl_moe": {"token_types": ("mm_token_type_ids",)},
}


@pytest.mark.parametrize("model_type", WRONG)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plausible_and_wrong_row_is_caught(load, model_type, dtype):
    policy = load(model_type, dtype=dtype)
    assert not differences(policy)
    wrong = differences(with_family(policy, **WRONG[model_type]))
    assert wrong
    with pytest.raises(SelfCheckError, match=r"two images of .*: off by .*native_inputs=True"):
        check_family(policy)


def test_images_in_another_order_are_caught(load, monkeypatch):
    policy = load("lfm2_vl", dtype="float32")
    joined = self_check_joined()
    monkeypatch.setattr("hf_vlm_rl.policy.images.features.joined", lambda features: joined(features[::-1]))
    assert "two images of one size in a left-padded batch: inputs_embeds" in differences(policy)


def self_check_joined():
    from hf_vlm_rl.policy.images.image_features import joined

    return joined


def test_a_model_that_shares_wrongly_does_not_share(load, verdicts, monkeypatch):
    policy = load("kimi_k25", dtype="float32")
    shutil.rmtree(verdicts)  # or the check would not run again
    assert policy.base_model.sharing.refusal is None
    monkeypatch.setattr(
        "hf_vlm_rl.policy.sharing.decoder._by_rows",
        lambda layout, packed: torch.ones(*layout.shape, packed.shape[-1]),
    )
    monkeypatch.setattr("hf_vlm_rl.policy.probe.Verdicts.ask", lambda *arguments: None)
    assert "rows with one prompt differ by" in self_check.refusal_to_share(policy)
    check_family(policy)
    assert not policy.sharing_report()["packed"]


def test_a_verdict_is_kept_by_class_config_and_release(load, verdicts, monkeypatch):
    load("lfm2_vl", dtype="float32")
    (kept,) = verdicts.iterdir()
    assert json.loads(kept.read_text())["model"] == "Lfm2VlForConditionalGeneration"
    monkeypatch.setattr(self_check, "compare", lambda policy: pytest.fail("the verdict was not read"))
    load("lfm2_vl", dtype="float32")
    monkeypatch.undo()
    monkeypatch.setenv("HF_VLM_RL_CACHE", str(verdicts.parent))
    load("lfm2_vl", dtype="bfloat16")
    assert len(list(verdicts.iterdir())) == 2
    monkeypatch.setattr(transformers, "__version__", "99")
    load("lfm2_vl", dtype="float32")
    assert len(list(verdicts.iterdir())) == 3


def test_what_it_says_of_sharing_is_kept_too(load):
    for _ in range(2):
        assert "rows with one prompt differ" in load("hunyuan_vl", dtype="float32").base_model.sharing.refusal
        assert not load("hunyuan_vl", dtype="float32").sharing_report()["packed"]


def test_images_that_cannot_be_told_apart_go_one_by_one_from_the_first_forward_on(load, monkeypatch):
    rows = [user("What is it?", photo(name, (112, 112))) for name in ("cat", "coffee")]
    for _ in range(2):  # found by the check, then kept with its verdict
        policy = load("ovis2", dtype="float32")
        assert not policy.family.batches_images
        calls, encode = [], policy.base_model.get_image_features

        @functools.wraps(encode)
        def counted(*args, calls=calls, encode=encode, **kwargs):
            calls.append(len(kwargs["pixel_values"]))
            return encode(*args, **kwargs)

        monkeypatch.setattr(policy.base_model, "get_image_features", counted)
        policy(**tickets(policy.processing_class, rows))
        assert calls == [1, 1]


CODE = "from torch import nn\n\n\nclass Part(nn.Identity):\n    pass\n"


def test_a_verdict_is_of_the_code_that_it_was_reached_with(load, verdicts, tmp_path, monkeypatch):
    policy = load("lfm2_vl", dtype="float32")
    assert len(list(verdicts.iterdir())) == 1
    file = tmp_path / "edited_in_place.py"
    file.write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    policy.base_model.vision_tower.part = importlib.import_module("edited_in_place").Part()
    for kept in (2, 2):
        check_family(policy)
        assert len(list(verdicts.iterdir())) == kept
    file.write_text(CODE + "\n    # with another fault\n")
    check_family(policy)
    assert len(list(verdicts.iterdir())) == 3


def test_of_code_that_is_in_no_file_no_verdict_is_kept(load, verdicts):
    policy = load("lfm2_vl", dtype="float32")
    names = {"__name__": "a_cell"}
    exec(CODE, names)
    policy.base_model.vision_tower.part = names["Part"]()
    check_family(policy)
    assert len(list(verdicts.iterdir())) == 1


@pytest.mark.parametrize("effect", ["mean", "number", "place"])
def test_features_that_depend_on_other_images_of_the_call_are_caught(load, effect):
    policy = load("lfm2_vl", dtype="float32")
    encode = policy.base_model.get_image_features

    @functools.wraps(encode)
    def depending(*args, **kwargs):
        output = encode(*args, **kwargs)
        images = output.pooler_output
        if effect == "mean":
            added = [torch.cat([image.mean(dim=0, keepdim=True) for image in images]).mean(dim=0)] * len(
                images
            )
        else:
            added = [len(images) if effect == "number" else place for place in range(len(images))]
        output.pooler_output = [image + more for image, more in zip(images, added, strict=True)]
        return output

    policy.base_model.get_image_features = depending
    assert "an image twice, beside another: inputs_embeds" in differences(policy)


def test_half_a_verdict_is_none(load, verdicts):
    load("lfm2_vl", dtype="float32")
    (kept,) = verdicts.iterdir()
    whole = kept.read_text()
    kept.write_text(whole[: len(whole) // 2])
    load("lfm2_vl", dtype="float32")
    assert kept.read_text() == whole


def test_without_a_place_for_verdicts_a_model_loads(load, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_VLM_RL_CACHE", str(tmp_path / "file"))
    assert load("lfm2_vl", dtype="float32").family.model_type == "lfm2_vl"


def test_a_forward_that_fails_says_how_to_go_on(load, monkeypatch):
    def fail(*args, **kwargs):
        raise AttributeError("no such field")

    monkeypatch.setattr("hf_vlm_rl.policy.images.features.joined", fail)
    with pytest.raises(SelfCheckError, match=r"cannot be compared .*no such field.*native_inputs"):
        load("lfm2_vl", dtype="float32")


def test_it_leaves_nothing_behind(load):
    policy = load("qwen3_5_moe", dtype="float32")
    report = policy.sharing_report()
    assert not any(report.pop("not_shared").values())
    assert report.pop("packed")
    assert not any(report.values())
    assert policy.base_model.rope_deltas is None
    assert policy.base_model.feature_cache.nbytes == 0


def test_a_large_model_stops_at_the_decoders_door(load, monkeypatch):
    monkeypatch.setattr(self_check, "MOST_PARAMETERS", 1)
    policy = load("lfm2_vl", dtype="float32")
    policy.base_model.decoder.layers[0].register_forward_hook(lambda *_: pytest.fail("a layer ran"))
    names = {clause.rpartition(": ")[2] for clause, _, _ in compare(policy)}
    assert "inputs_embeds" in names
    assert "logits" not in names


def test_the_twelve_families_and_models_without_weights_are_not_checked(load, checkpoint, verdicts):
    load("qwen2_vl")
    policy_on_meta(read_checkpoint(str(checkpoint("lfm2_vl"))), torch.float32, ImageStore())
    assert not verdicts.exists()


@pytest.mark.parametrize(("model_type", "moves"), [("kimi_k25", False), ("hunyuan_vl", True)])
def test_stock_models_whose_rows_depend_on_their_batch_are_named(load, model_type, moves):
    assert (stock_batch_effect(load(model_type, dtype="float32")) > 1e-3) is moves
