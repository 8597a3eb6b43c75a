"""The check of a derived family: what it lets through, what it catches, and what it keeps."""

import copy
import dataclasses
import functools
import json

import pytest
import torch

from hf_vlm_rl import AutoVLMPolicy, ImageStore
from hf_vlm_rl.errors import SelfCheckError
from hf_vlm_rl.loading import self_check
from hf_vlm_rl.loading.meta import policy_on_meta, read_checkpoint
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
    monkeypatch.setattr("hf_vlm_rl.policy.features.joined", lambda features: joined(features[::-1]))
    assert "two images of one size in a left-padded batch: inputs_embeds" in differences(policy)


def self_check_joined():
    from hf_vlm_rl.policy.image_features import joined

    return joined


def test_a_model_that_shares_wrongly_shares_in_another_way_or_not(load, monkeypatch):
    policy = load("kimi_k25", dtype="float32")
    assert policy.base_model.sharing.refusal is None
    monkeypatch.setattr(
        "hf_vlm_rl.policy.sharing.decoder.unpack",
        lambda layout, packed: torch.ones(*layout.shape, packed.shape[-1]),
    )
    monkeypatch.setattr("hf_vlm_rl.policy.sharing.share.disagreement", lambda *arguments: None)
    assert self_check.refusal_to_share(policy) is None
    assert policy.sharing_report()["way"] == "cached"
    monkeypatch.setattr(
        "hf_vlm_rl.policy.sharing.cached.later_masks", lambda mask, column, shape, cache: torch.zeros(shape)
    )
    assert "rows with one prompt differ by" in self_check.refusal_to_share(policy)
    assert policy.sharing_report()["way"] is None


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
    monkeypatch.setattr(self_check.transformers, "__version__", "99")
    load("lfm2_vl", dtype="float32")
    assert len(list(verdicts.iterdir())) == 3


def test_what_it_says_of_sharing_is_kept_too(load):
    for _ in range(2):
        assert "rows with one prompt differ" in load("hunyuan_vl", dtype="float32").base_model.sharing.refusal
        assert load("mistral_large4", dtype="float32").sharing_report()["way"] == "cached"


def test_images_that_cannot_be_told_apart_go_one_by_one_from_the_first_forward_on(load, monkeypatch):
    rows = [user("What is it?", photo(name, (112, 112))) for name in ("cat", "coffee")]
    for _ in range(2):  # found by the check, then kept with its verdict
        policy = load("ovis2", dtype="float32")
        assert not policy.family.packs
        calls, encode = [], policy.base_model.get_image_features

        @functools.wraps(encode)
        def counted(*args, calls=calls, encode=encode, **kwargs):
            calls.append(len(kwargs["pixel_values"]))
            return encode(*args, **kwargs)

        monkeypatch.setattr(policy.base_model, "get_image_features", counted)
        policy(**tickets(policy.processing_class, rows))
        assert calls == [1, 1]


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

    monkeypatch.setattr("hf_vlm_rl.policy.features.joined", fail)
    with pytest.raises(SelfCheckError, match=r"cannot be compared .*no such field.*native_inputs"):
        load("lfm2_vl", dtype="float32")


def test_it_leaves_nothing_behind(load):
    policy = load("qwen3_5_moe", dtype="float32")
    report = policy.sharing_report()
    assert not any(report.pop("not_shared").values())
    assert report.pop("way") == "mixed"
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
