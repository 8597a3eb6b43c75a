"""AsyncGRPOTrainer trains a policy on images: from an id, on tries of samples, here without a server."""

import inspect

import pytest
import torch
import trl
from packaging.version import Version

from tests.policy.test_trie import prompt, samples
from tests.policy.tries import fold
from tests.processing.prompts import CAT, COFFEE
from tests.trainers.asynchronous import asynchronous, ended, module_of, results
from tests.trainers.ways import ASYNC_GRPO as FAMILIES

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(
        Version(trl.__version__) < Version("1.16"), reason="AsyncGRPO of TRL before 1.16 trains no such model"
    ),
]


@pytest.fixture(scope="module")
def runs(checkpoint):
    """What a process that called `register()` saw: three runs of each family."""
    return results("async_grpo", FAMILIES, checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_its_log_probs_are_those_of_the_samples_by_themselves(family, runs):
    own = [run for run in runs if run["family"] == family]
    assert len(own) == 3
    for result in own:
        assert result["policy"]
        assert result["checkpointing"]
        # In later steps the samples are older by one: accelerate takes a batch ahead.
        allowed = 5e-3 if result.get("bf16") else 1e-5
        assert abs(result["ratio"][0] - 1) < allowed
        assert abs(result["kl"][0]) < allowed
        assert result["stayed"] == result["tower"] == []
        assert result["images"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_costs_about_the_nodes_of_its_trie(family, runs):
    for result in [run for run in runs if run["family"] == family]:
        assert result["not_shared"] == {}
        assert 0 < result["computed"] <= 1.2 * result["nodes"]


@pytest.mark.slow
def test_the_attention_of_tries_reaches_no_module(runs):
    assert all("tree_fa3" not in result["attention"] for result in runs)


@pytest.mark.slow
def test_it_refuses_hybrids_itself(checkpoint):
    done = ended("async_grpo", ("qwen3_5",), checkpoint)
    assert done.returncode != 0
    assert "Tree packing only routes attention layers" in done.stderr


def trees():
    """The trainer's module, wherever it is: it has TRL's own trie and fused head."""
    pytest.importorskip("aiohttp", reason="TRL's worker imports aiohttp, which is not installed")
    return module_of(asynchronous("async_grpo")[0])


def test_tries_of_these_tests_are_those_that_trl_packs(policy_for):
    rows = samples(policy_for("qwen2_5_vl"))
    row = trees().TreeRow()
    for ids in rows:
        known = {"input_ids": torch.tensor(ids), "completion_mask": torch.zeros(len(ids)), "group_id": 0}
        row.add(known | {"old_log_probs": torch.zeros(len(ids)), "advantage": 0.0})
    theirs, (ours, _) = row.pack(), fold(rows)
    longest = theirs.pop("tree_max_seqlens").tolist()
    assert longest == [ours.pop("tree_max_seqlen_q"), ours.pop("tree_max_seqlen_k")]
    for name, value in ours.items():
        assert torch.equal(value.flatten(), theirs[name]), name
    passed = inspect.getsource(trees().AsyncGRPOTrainer.compute_loss)
    assert all(name in passed for name in ours)


@pytest.mark.parametrize("family", FAMILIES)
def test_trls_head_gives_the_log_probs_of_the_samples(family, policy_for):
    policy = policy_for(family)
    rows = [
        [*prompt(policy, image, "What?"), 200, *end] for image in (CAT, COFFEE) for end in ([207, 208], [209])
    ]
    arguments, places = fold(rows)
    labels = torch.full_like(arguments["input_ids"], -100)
    expected = []
    for ids, nodes in zip(rows, places, strict=True):
        with torch.no_grad():
            states = policy.base_model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
            logits = policy.get_output_embeddings()(states)[0]
        expected.append(logits.log_softmax(-1)[range(len(ids) - 3, len(ids) - 1), ids[-2:]])
        labels[0, nodes[-3:-1]] = torch.tensor(ids[-2:])
    trees().add_fused_lm_head(policy, outputs=("log_probs", "entropy"))
    with torch.no_grad():
        found = policy(**arguments, shift_labels=labels, fused_lm_head=True).log_probs[0]
    for nodes, own in zip(places, expected, strict=True):
        torch.testing.assert_close(found[nodes[-3:-1]], own, atol=2e-5, rtol=0)
