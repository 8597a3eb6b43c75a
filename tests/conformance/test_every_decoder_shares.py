"""Clause 6 over every class: rows that share a prompt give the values and gradients of rows that do not."""

import pytest
import torch
from peft import get_peft_model

from .cases import tickets
from .every import CLAIMED, STOCK_FAILS_BACKWARD, none, one, two
from .rounding import assert_equal_gradients, rtol_of_rows
from .test_sharing import SHUFFLED, group, real

# Of the log-probs, in float32 on one thread. Recurrent layers carry on the last bits of their states.
ATOL = 5e-5

NATIVE = "native_inputs: the model gets the native processor's tensors"

# Classes that share nothing, and why; at most a tenth of all.
NOT_SHARED = {
    "chameleon": "the decoder is no module of its own",
    "emu3": NATIVE,
    "fast_vlm": NATIVE,
    "gemma3n": NATIVE,
    "hunyuan_vl": "rows with one prompt differ",
    "mllama": NATIVE,
    "phi4_multimodal": NATIVE,
}

# Classes whose rows are not packed because of layers of a kind that nobody has packed rows for.
UNPACKED = {
    "dots3_note": "indexed_attention",
    "glm5_next": "indexed_attention",
    "inkling2": "hybrid",
    "inkling_mm_model": "hybrid",
    "minimax_m3_vl": "minimax_m3_sparse",
    "mistral_large4": "indexed_attention",
    "qwen4_exp": "indexed_attention",
    "unlimited_ocr": "reference_sliding_attention",
}
WHY = NOT_SHARED | {
    name: f"its {kind} layers are not known to run on packed rows" for name, kind in UNPACKED.items()
}

SHARED = [name for name in CLAIMED if name not in WHY]

each = pytest.mark.parametrize("model_type", SHARED)


def test_at_most_a_tenth_of_the_classes_shares_nothing_and_a_fifth_packs_no_rows():
    assert len(NOT_SHARED) <= 0.1 * len(CLAIMED)
    assert len(WHY) <= 0.2 * len(CLAIMED)


@pytest.mark.parametrize("model_type", CLAIMED)
def test_rows_are_packed_or_the_report_says_why_not(model_type, twins):
    twins.policy.base_model.sharing.mode = True
    with torch.no_grad():
        twins.policy(**twins.tickets([one(), one()]), use_cache=False)
    report = twins.policy.sharing_report()
    assert report["packed"] == (model_type not in WHY)
    if model_type in WHY:
        assert any(WHY[model_type] in reason for reason in report["not_shared"])
    else:
        assert report["not_shared"] == {}


def batch_of(twins, order=SHUFFLED) -> dict:
    """Three prompts with three completions each, shuffled; the cat has the prompt of the astronaut."""
    made = twins.rows(one(), two(), none())
    return group(twins.policy, made if len(made) == 3 else [one(), two(), one("cat")], order=order)


def run(twins, batch: dict, mode: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probs of the completions, and gradients of all weights."""
    twins.policy.zero_grad()
    twins.policy.base_model.sharing.mode = mode
    logits = twins.policy(**batch, use_cache=False, logits_to_keep=8).logits.clamp(min=-1e4)
    log_probs = real(logits.log_softmax(-1), batch, 8)
    log_probs[:, ::7].mean().backward()
    grads = {name: p.grad for name, p in twins.policy.named_parameters() if p.grad is not None}
    return log_probs.detach(), grads


def assert_same(twins, batch: dict) -> None:
    (expected, expected_grads), (found, grads) = (run(twins, batch, mode) for mode in (False, True))
    # Over six seeds, rows by themselves are up to 5.6e-5 from float64 in recurrent layers, shared 6.8e-5.
    atol = 2 * ATOL if twins.policy.base_model.sharing.recurrent else ATOL
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)
    assert_equal_gradients(twins.policy, grads, expected_grads)


@each
def test_values_and_gradients_are_those_of_rows_by_themselves(model_type, twins):
    batch = batch_of(twins)
    assert_same(twins, batch)
    report = twins.policy.sharing_report()
    assert report["tokens_computed"] < 0.35 * report["tokens"]


@each
def test_words_before_different_images_are_shared(model_type, twins):
    """No prefix ends behind a token that begins an image and sees all of it."""
    words = (
        "You look at pictures for a long time before you say a word about them. Now, please: what is this?"
    )
    rows = [one(name, words) for name in ("astronaut", "cat")]
    for row in rows:
        row[0]["content"].reverse()  # the image behind the text
    batch = group(twins.policy, rows, completions=2, order=[2, 0, 3, 1])
    assert_same(twins, batch)
    assert twins.policy.sharing_report()["not_shared"] == {}


@each
def test_rows_that_begin_alike_and_go_on_with_other_images_are_told_apart(model_type, twins):
    """A prefix may end before an image or in the middle of a text, never inside of what sees itself."""
    first, second = one("cat", "A picture: what is it?"), two()
    batch = tickets(twins.processing, [first, first, second, second, one("coffee", "A picture: what is it?")])
    if model_type in STOCK_FAILS_BACKWARD:
        pytest.skip("its own backward fails in transformers 5.23")
    twins.policy.base_model.sharing.mode = False
    with torch.no_grad():
        expected = twins.policy(**batch, use_cache=False).logits
        twins.policy.base_model.sharing.mode = True
        found = twins.policy(**batch, use_cache=False).logits
    mask = batch["attention_mask"].bool()
    scale = expected[mask].abs().clamp(max=1e4).max()
    torch.testing.assert_close(found[mask], expected[mask], atol=2e-5 * scale.item(), rtol=0)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["non-reentrant", "reentrant"])
@each
def test_gradient_checkpointing_changes_no_gradient(model_type, twins, checkpointing):
    """Layers run again in the backward pass."""
    batch, runs = batch_of(twins), []
    for mode in (False, True):
        torch.manual_seed(0)
        twins.policy.base_model.sharing.mode = mode
        model = get_peft_model(twins.policy, twins.policy.lora_config(r=2, init_lora_weights=False))
        try:
            model.train()
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
            model.enable_input_require_grads()
            logits = model(**batch, use_cache=False, logits_to_keep=8).logits.clamp(min=-1e4)
            real(logits.log_softmax(-1), batch, 8)[:, ::7].mean().backward()
            runs.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        finally:
            model.gradient_checkpointing_disable()
            model.unload()
            twins.policy.eval()
    assert_equal_gradients(twins.policy, runs[1], runs[0])
    assert twins.policy.sharing_report()["tokens"]


@each
def test_rows_padded_on_both_sides_share(twins):
    batch = batch_of(twins)
    more = torch.zeros(len(batch["input_ids"]), 3, dtype=torch.long)
    for name, value in (("input_ids", twins.processing.pad_token_id), ("attention_mask", 0)):
        batch[name] = torch.cat([more + value, batch[name], more + value], dim=1)
    logits = []
    with torch.no_grad():
        for twins.policy.base_model.sharing.mode in (False, True):
            logits.append(twins.policy(**batch, use_cache=False).logits[batch["attention_mask"].bool()])
    scale = logits[0].abs().clamp(max=1e4).max().item()
    atol = rtol_of_rows(twins.policy) * scale
    torch.testing.assert_close(logits[1], logits[0], atol=atol, rtol=0)
