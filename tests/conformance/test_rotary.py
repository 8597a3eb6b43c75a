"""Rotary frequencies that depend on a batch's longest row: what is computed is what stock computes.

InternLM2 in InternVL2.5-8B has "dynamic" ones, Phi-3 in InternVL2.5-4B "longrope".
"""

import functools
import json
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForImageTextToText, AutoProcessor, LlamaConfig

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.policy.rotary import steady_positions

from .cases import native, tickets, user
from .test_finished_rows import IMAGES, PICTURES, TEXTS, EndAt

ATOL = 5e-5
HALF = 8  # of a head
LENGTHS = (64, 120, 220, 4096)
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}


def rotary(kind: str, length: int) -> dict:
    """Settings of a text config whose frequencies change from `length` positions on."""
    if kind == "dynamic":
        return {"rope_parameters": DYNAMIC, "max_position_embeddings": length}
    factors = {"short_factor": [1.0] * HALF, "long_factor": [1.0 + place for place in range(HALF)]}
    parameters = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, **factors}
    return {
        "rope_parameters": parameters | {"original_max_position_embeddings": length},
        "max_position_embeddings": 4 * length,
    }


@pytest.fixture(scope="session")
def twins(checkpoint, tmp_path_factory):
    """`twins(family, kind, length)`: stock model and processor, and a policy; counts are new."""

    @functools.cache
    def load(family, kind, length):
        directory = tmp_path_factory.mktemp("rotary") / "model"
        shutil.copytree(checkpoint(family), directory)
        config = json.loads((directory / "config.json").read_text())
        config["text_config"] |= rotary(kind, length)
        (directory / "config.json").write_text(json.dumps(config))
        bare = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32).eval()
        policy = AutoVLMPolicy.from_pretrained(directory, dtype="float32", sharing=True).eval()
        return bare, AutoProcessor.from_pretrained(directory, padding_side="left"), policy

    def renewed(*which):
        bare, processor, policy = load(*which)
        policy.base_model.renew()
        return bare, processor, policy

    return renewed


def conversations(rows, repeats):
    return [user(text, *(PICTURES[name] for name in images)) for images, text in rows for _ in range(repeats)]


drawn = st.lists(st.tuples(st.sampled_from(IMAGES), st.sampled_from(TEXTS)), min_size=1, max_size=3)
kinds = pytest.mark.parametrize("kind", ["dynamic", "longrope"])


@kinds
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=drawn, repeats=st.integers(1, 3), length=st.sampled_from(LENGTHS), own=st.integers(1, 12))
def test_log_probs_and_gradients(twins, kind, rows, repeats, length, own):
    bare, processor, policy = twins("internvl", kind, length)
    messages = conversations(rows, repeats)
    generator = torch.Generator().manual_seed(own)
    completions = torch.randint(100, 300, (len(messages), own), generator=generator)
    lengths = torch.randint(1, own + 1, (len(messages), 1), generator=generator)
    mask = (torch.arange(own) < lengths).long()
    found = []
    for model, batch in (
        (bare, native(processor, messages)),
        (policy, tickets(policy.processing_class, messages)),
    ):
        batch["input_ids"] = torch.cat([batch["input_ids"], completions], dim=1)
        batch["attention_mask"] = torch.cat([batch["attention_mask"], mask], dim=1)
        model.zero_grad()
        logits = model(**batch, use_cache=False, logits_to_keep=own + 1).logits[:, :-1]
        log_probs = logits.log_softmax(-1).gather(-1, completions[..., None])[..., 0]
        (log_probs * mask).sum().backward()
        decoder = policy.base_model.decoder if model is policy else model.model.language_model
        found.append(((log_probs * mask).detach(), decoder.embed_tokens.weight.grad.clone()))
    (expected, gradients), (log_probs, own_gradients) = found
    torch.testing.assert_close(log_probs, expected, atol=ATOL, rtol=0)
    scale = gradients.abs().max()
    torch.testing.assert_close(own_gradients / scale, gradients / scale, atol=1e-4, rtol=0)
    padded = not batch["attention_mask"].all()
    report = policy.sharing_report()
    if length == LENGTHS[-1] and len(messages) > 1:
        assert report["not_shared"] == {}
        assert report["tokens"] > 0
    if batch["input_ids"].shape[1] >= length and len(messages) > 1 and padded:
        assert any(f"from {length} positions on" in reason for reason in report["not_shared"])


@kinds
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=drawn,
    repeats=st.integers(1, 3),
    length=st.sampled_from(LENGTHS),
    lengths=st.lists(st.integers(1, 12), min_size=9, max_size=9),
    do_sample=st.booleans(),
)
def test_what_is_generated(twins, kind, rows, repeats, length, lengths, do_sample):
    bare, processor, policy = twins("internvl", kind, length)
    messages = conversations(rows, repeats)
    never = list(policy.placeholder_ids)
    options = {"max_new_tokens": 12, "do_sample": do_sample, "suppress_tokens": never, "pad_token_id": 3}
    options["eos_token_id"] = list(range(10, 30))
    found = []
    for model, batch in (
        (bare, native(processor, messages)),
        (policy, tickets(policy.processing_class, messages)),
    ):
        torch.manual_seed(0)
        found.append(model.generate(**batch, **options, stopping_criteria=[EndAt(lengths)]))
    assert torch.equal(*found)
    report = policy.sharing_report()
    steady = batch["input_ids"].shape[1] + 12 < length
    reasons = {**report["rows_kept"], **report["not_shared"]}
    assert steady == (not any("positions on" in reason for reason in reasons)) or len(messages) == 1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"rope_parameters": DYNAMIC}, 2048),
        ({"rope_parameters": {"a": DYNAMIC, "b": {"rope_type": "default", "rope_theta": 1.0}}}, 2048),
        (rotary("longrope", 128), 128),
        ({"rope_parameters": DYNAMIC | {"alpha": 1000.0}}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_where_frequencies_begin_to_change(config, expected):
    assert steady_positions(LlamaConfig(**config)) == expected
