"""GRPO and DPO without PEFT: every weight trains, and the reference is a second policy."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import dpo, grpo, logs, mixture, parameters, preferences, split_by_change

pytestmark = pytest.mark.trl

ROOT = Path(__file__).parents[2]

# Parameters that the stock model leaves out of its own graph, by the start of their names.
_SECOND_TO_LAST = ("model.vision_tower.encoder.layers.1.", "model.vision_tower.post_layernorm.")
OUTSIDE_THE_GRAPH = {
    # `vision_feature_layer=-2`: features leave the tower before its last layer and final norm.
    "llava": _SECOND_TO_LAST,
    "llava_next": _SECOND_TO_LAST,
    # `vision_feature_layer=-1`: features are the last layer's, before the final norm.
    "llava_onevision": ("model.vision_tower.post_layernorm.",),
}


def outside(family: str, names) -> set[str]:
    return {name for name in names if name.startswith(OUTSIDE_THE_GRAPH.get(family, ("-",)))}


@pytest.mark.parametrize("family", FAMILIES)
def test_grpo_without_a_reference_moves_every_weight_in_the_graph(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, mixture(family), tmp_path, beta=0.0, learning_rate=1e-3)
    before = parameters(policy)
    trainer.train()
    assert split_by_change(policy, before) == (outside(family, before), set())


@pytest.fixture(scope="module")
def registered(checkpoint):
    """What a process that called `register()` saw, by family; it trains all, so its tests are slow."""
    base = checkpoint(FAMILIES[0]).parent
    for family in FAMILIES:
        checkpoint(family)
    command = [sys.executable, "-m", "tests.trainers.registered", str(base), *FAMILIES]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return {result["family"]: result for result in map(json.loads, lines)}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_after_register_trl_loads_the_reference_as_a_policy(family, registered):
    result = registered[family]
    assert result["reference_is_policy"]
    assert result["reference_moved"] == []
    kl, loss = zip(*result["steps"], strict=True)
    # The reference starts with the policy's weights and sees the same images.
    assert abs(kl[0]) < 1e-6
    assert kl[-1] > 1e-6
    assert all(math.isfinite(value) for value in (*kl, *loss))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_reference_every_weight_in_the_graph_moves(family, registered):
    result = registered[family]
    assert set(result["stayed"]) == outside(family, result["stayed"])
    assert result["frozen_moved"] == []
    assert set(result["reference_began_apart"]).isdisjoint(result["stayed"])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_after_register_a_model_id_is_enough_for_a_trainer(family, registered):
    assert registered[family]["id_gives_policy"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_after_register_the_stock_auto_classes_give_stock_objects(family, registered, bare_for):
    result, bare = registered[family], type(bare_for(family))
    assert not result["auto_model_gives_policy"]
    assert result["auto_model"] == f"{bare.__module__}.{bare.__name__}"
    assert result["auto_processor_mro"] == "ProcessorMixin"
    assert result["saved_architectures"] == [bare.__name__]


@pytest.mark.parametrize("family", FAMILIES)
def test_dpo_without_peft_uses_the_reference_policy_it_is_given(family, policy_for, tmp_path):
    policy, reference = policy_for(family), policy_for(family)
    trainer = dpo(policy, preferences(family), tmp_path, ref_model=reference, learning_rate=1e-3)
    before, before_reference = parameters(policy), parameters(reference)
    trainer.train()
    (first, margin), (_, later) = logs(trainer, "loss", "rewards/margins")
    assert first == pytest.approx(math.log(2), abs=1e-5)
    assert margin == pytest.approx(0.0, abs=1e-5)
    assert later > 1e-3
    assert split_by_change(policy, before) == (outside(family, before), set())
    assert all(value.equal(before_reference[name]) for name, value in reference.named_parameters())
