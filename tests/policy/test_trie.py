"""A trie of samples is computed as the samples are by themselves, and costs about its nodes."""

import pytest
import torch
import transformers
from packaging.version import Version
from peft import get_peft_model

from hf_vlm_rl import TicketError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.every import NEWER
from tests.conformance.rounding import assert_equal_gradients
from tests.conformance.test_trees import ATOL, ATOL_RECURRENT
from tests.processing.prompts import CAT, COFFEE, ROCKET, user

from .tries import fold

ANSWERS = ([7, 8, 9, 10, 11], [7, 8, 12], [7, 8, 9, 10, 13, 14], [15])


def prompt(policy, *parts) -> list[int]:
    """Ids with tickets."""
    return list(policy.processing_class.encode_prompt(user(*parts))["input_ids"])


def samples(policy, answers=ANSWERS) -> list[list[int]]:
    """Four answers to each of four prompts, of which two have one text and images of one size."""
    needs = policy.family.needs_image
    question = "What do you see here? Answer in a few words, please."
    prompts = [
        prompt(policy, CAT, question),
        prompt(policy, CAT.transpose(0), question),
        prompt(policy, COFFEE, CAT, question),
        prompt(policy, ROCKET, "Hello.") if needs else prompt(policy, "Hello."),
    ]
    rows = [[*ids, *(200 + token for token in answer)] for ids in prompts for answer in answers]
    # One goes on after its answer, and one is there twice.
    return [*rows, [*rows[0], *range(220, 240)], rows[5]]


def hidden(policy, **arguments) -> torch.Tensor:
    return policy.base_model(**arguments, use_cache=False).last_hidden_state


def text_of(policy, ids: list[int]) -> torch.Tensor:
    """Which tokens are text that text follows: losses are taken there.

    Two images whose first digits are equal share nodes, and so do tokens before that see them, as Molmo2's.
    """
    processing = policy.processing_class
    clean, _ = processing.codec.read(ids, lambda ticket: processing.processed(ticket).tokens)
    images = processing.state.marks(torch.tensor(clean))
    return ~images & ~images.roll(-1)


def loss_of(states: torch.Tensor) -> torch.Tensor:
    weights = torch.linspace(-1, 1, states.shape[-1], device=states.device).sin()
    return (states.float() @ weights).square().sum()


def gradients(policy) -> dict[str, torch.Tensor]:
    return {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}


def folded(policy, rows) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Hidden states of each sample, and gradients, of the trie."""
    policy.zero_grad()
    arguments, places = fold(rows)
    states = hidden(policy, **arguments)
    assert states.shape[:2] == arguments["input_ids"].shape
    own = [states[0, nodes][text_of(policy, ids)] for ids, nodes in zip(rows, places, strict=True)]
    sum(map(loss_of, own)).backward()
    return [each.detach() for each in own], gradients(policy)


def alone(policy, rows) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The same of the samples by themselves."""
    policy.zero_grad()
    states = []
    for ids in rows:
        own = hidden(policy, input_ids=torch.tensor([ids]))[0, text_of(policy, ids)]
        loss_of(own).backward()
        states.append(own.detach())
    return states, gradients(policy)


def tolerance(policy) -> float:
    return ATOL_RECURRENT if policy.base_model.sharing.recurrent else 2 * ATOL


def assert_equal(policy, found, expected) -> None:
    (values, gradients), (own, own_gradients) = found, expected
    largest = max(float(each.abs().max()) for each in own)
    for each, same in zip(values, own, strict=True):
        torch.testing.assert_close(each, same, atol=tolerance(policy) * largest, rtol=0)
    assert_equal_gradients(policy, gradients, own_gradients)


# On transformers 5.20.0 the self-check refuses to share rows of LFM2's convolutions: they run by themselves.
UNSHARED = ("lfm2_vl",) if Version(transformers.__version__) < Version("5.23") else ()
# The other one, Llama 4, has no backbone below its head, and TRL's fused head asks for one.
WITH_BACKBONE = [*FAMILIES, *(name for name in NEWER if name != "llama4")]


@pytest.mark.parametrize("family", WITH_BACKBONE)
@pytest.mark.parametrize("sharing", ["auto", True, False])
def test_values_and_gradients_are_those_of_the_samples_by_themselves(family, sharing, policy_for):
    policy = policy_for(family)
    policy.base_model.sharing.mode = sharing
    rows = samples(policy)
    assert_equal(policy, folded(policy, rows), alone(policy, rows))
    report = policy.sharing_report()
    assert (report["tokens"] > 0) == (sharing is not False and family not in UNSHARED)


@pytest.mark.parametrize("family", [name for name in WITH_BACKBONE if name not in UNSHARED])
def test_a_trie_costs_about_its_nodes(family, policy_for):
    policy = policy_for(family)
    rows = samples(policy)
    arguments, _ = fold(rows)
    with torch.no_grad():
        hidden(policy, **arguments)
    report, nodes = policy.sharing_report(), arguments["input_ids"].numel()
    assert report["not_shared"] == {}
    assert report["tokens_computed"] <= 1.2 * nodes < 0.5 * sum(map(len, rows))


def test_rows_that_may_not_share_are_computed_by_themselves(policy_for):
    policy = policy_for("qwen2_5_vl")
    policy.base_model.decoder.register_forward_hook(lambda *_: None)
    rows = samples(policy)
    assert_equal(policy, folded(policy, rows), alone(policy, rows))
    assert "a hook of tests.policy.test_trie is on the decoder" in policy.sharing_report()["not_shared"]


def test_one_sample_and_samples_of_text_alone(policy_for):
    policy = policy_for("qwen2_5_vl")
    for rows in ([prompt(policy, CAT, "What?")], [[100, 101, 102], [100, 101, 103, 104], [105]], [[100]]):
        assert_equal(policy, folded(policy, rows), alone(policy, rows))


@pytest.mark.parametrize("family", ["internvl", "gemma3", "qwen3_vl", "lfm2_vl"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_adapters_and_gradient_checkpointing(family, reentrant, policy_for):
    policy = policy_for(family)
    rows = samples(policy)
    model = get_peft_model(policy, policy.lora_config(r=2, init_lora_weights=False)).train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    found = folded(policy, rows)
    assert (policy.sharing_report()["not_shared"] == {}) == (family not in UNSHARED)
    assert_equal(policy, found, alone(policy, rows))


@pytest.mark.parametrize("family", ["internvl", "gemma3", "qwen2_5_vl", "qwen3_5_moe"])
def test_bfloat16_rounds_a_trie_as_it_rounds_its_samples(family, policy_for):
    policy = policy_for(family).train()
    rows = samples(policy)
    exact = alone(policy, rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = folded(policy, rows), alone(policy, rows)
    assert policy.sharing_report()["tokens"] > 0

    def norm(tensors) -> float:
        return sum(float(tensor.float().square().sum()) for tensor in tensors) ** 0.5

    def error(states, gradients) -> tuple[float, float]:
        values, own = exact
        far = norm(a.float() - b for a, b in zip(states, values, strict=True)) / norm(values)
        return far, norm(gradients[name] - own[name] for name in own) / norm(own.values())

    for ours, theirs in zip(error(*found), error(*expected), strict=True):
        assert ours <= 1.5 * theirs


def test_a_policy_with_logits_takes_no_trie(policy_for):
    policy = policy_for("internvl")
    arguments, _ = fold(samples(policy))
    with pytest.raises(TypeError, match=r"for a forward with logits. Expected .*policy.base_model"):
        policy(**arguments)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"tree_kv_index": None}, "Expected input_ids, position_ids, tree_kv_index, tree_cu_seqlens_k"),
        ({"position_ids": None}, "for ids of shape"),
        ({"position_ids": lambda depths: depths + 1}, "where position_ids is not its depth"),
        ({"tree_kv_index": lambda index: index.flip(0)}, "some node is on no path, or on one where"),
        ({"input_ids": lambda ids: ids.repeat(2, 1)}, "for ids of shape"),
        (
            {
                "input_ids": lambda ids: torch.cat([ids, ids], 1),
                "position_ids": lambda d: torch.cat([d, d], 1),
            },
            "on no",
        ),
    ],
)
def test_what_is_no_trie_is_refused(changed, match, policy_for):
    policy = policy_for("internvl")
    arguments, _ = fold(samples(policy))
    for name, change in changed.items():
        arguments[name] = change and change(arguments[name])
    with pytest.raises(ValueError, match=match):
        hidden(policy, **arguments)


@pytest.mark.parametrize("asked", ["output_router_logits", "output_hidden_states"])
def test_other_outputs_of_each_token_are_refused(asked, policy_for):
    policy = policy_for("qwen3_vl_moe")
    arguments, _ = fold(samples(policy))
    with pytest.raises(TicketError, match=f"Got .*{asked}.* router_aux_loss_coef=0"):
        hidden(policy, **arguments, **{asked: True})
    setattr(policy.config.get_text_config(), asked, True)
    with pytest.raises(TicketError, match=r"returns .* as well"):
        hidden(policy, **arguments)
