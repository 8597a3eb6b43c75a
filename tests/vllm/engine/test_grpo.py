"""Three steps of TRL's GRPO with a real vLLM in the process: it sees and scores what the policy does."""

import gc
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from trl import GRPOTrainer
from trl.generation import vllm_generation
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.errors import UnsupportedModelError
from hf_vlm_rl.front import agreement
from hf_vlm_rl.policy import serving
from hf_vlm_rl.processing import tokenizer
from hf_vlm_rl.vllm import match_weight_names, read_tickets, vllm_rollout
from tests.trainers.runs import flat, grpo, mixture, rloo
from tests.vllm.looking import OWN_TOKENS, TURN, TURNS, always_calls, photo_of

pytestmark = pytest.mark.trl

SERVED = ("qwen2_5_vl", "qwen3_vl", "internvl", "idefics3", "llava", "qwen2_vl", "smolvlm")
# Behind the layer whose features LLaVA takes; vLLM does not make it.
UNUSED = {"llava": ("vision_tower.post_layernorm.", "vision_tower.encoder.layers.1.")}
WEIGHTS = ("LoRA", "LoRA on all parts", "full")
# Of log-probs in float32 on both sides; the issue of a wrong prompt is 1 and more.
CLOSE = 1e-3


@pytest.fixture
def with_engine(own_port, monkeypatch, tmp_path):
    """`with_engine(policy, family, weights, **options)`: a GRPO trainer with a vLLM of its own."""

    def on_cpu(**settings):
        return LLM(**settings | {"enforce_eager": True, "dtype": "float32"})

    monkeypatch.setattr(vllm_generation, "LLM", on_cpu)
    engines = []

    def trainer(policy, family, weights="LoRA", run=grpo, **options) -> GRPOTrainer:
        target = {"LoRA": "language", "LoRA on all parts": "all"}.get(weights)
        defaults = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_max_model_length": 1024,
            "vllm_gpu_memory_utilization": 0.5,
            "per_device_train_batch_size": 6,
            "steps_per_generation": 1,
            "max_completion_length": 8,
            "rollout": vllm_rollout,
            "peft": policy.lora_config(r=4, target=target) if target else None,
            "learning_rate": 1e-2 if target else 1e-3,
        }
        made = run(policy, options.pop("rows", mixture(family)), tmp_path, **defaults | options)
        engines.append(made.vllm_generation)
        match_weight_names(made)
        return made

    yield trainer
    for engine in engines:
        del engine.llm
    cleanup_dist_env_and_memory()
    PartialState._reset_state()
    AcceleratorState._reset_state()
    gc.collect()


@pytest.fixture
def policy_of(served):
    return lambda family, **options: AutoVLMPolicy.from_pretrained(served(family), dtype="float32", **options)


def record(
    family: str, weights: str, trainer: Any, way: str = "vllm_rollout", compared: Sequence[float] = ()
) -> tuple[list[float], list[float]]:
    """Log-prob differences and mean ratios of each step; also kept where `make test-vllm` asks for them.

    `compared` are the differences, for trainers that log none.
    """
    differences = list(compared) or flat(trainer, "sampling/sampling_logp_difference/max")
    ratios = [] if compared else flat(trainer, "sampling/importance_sampling_ratio/mean")
    if "HF_VLM_RL_VLLM_FIGURES" in os.environ:
        row = {"trainer": type(trainer).__name__, "way": way, "family": family, "weights": weights}
        row |= {"difference": differences, "ratio": ratios}
        with Path(os.environ["HF_VLM_RL_VLLM_FIGURES"]).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return differences, ratios


@pytest.fixture
def compared(monkeypatch):
    """The largest difference of log-probs at each comparison with the policy's."""
    largest, check_close = [], agreement.check_close

    def spied(row, images, own, sampled, in_float32):
        largest.append(max(abs(ours - theirs) for ours, theirs in zip(own, sampled, strict=True)))
        check_close(row, images, own, sampled, in_float32)

    monkeypatch.setattr(serving, "check_close", spied)
    return largest


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("family", SERVED)
def test_what_vllm_sampled_has_the_policys_log_probs(family, weights, policy_of, with_engine):
    """Rows with one image, two and none."""
    trainer = with_engine(policy_of(family), family, weights)
    trainer.train()
    differences, ratios = record(family, weights, trainer)
    assert len(ratios) == len(differences) == 3
    assert max(differences) < CLOSE
    assert max(abs(ratio - 1) for ratio in ratios) < CLOSE


@pytest.fixture
def with_ids(with_engine):
    """`with_ids(policy, family, weights, **options)`: the same for a trainer that knows nothing but ids."""

    def trainer(policy, family, weights="LoRA", **options):
        rows = [policy.tokenizer.with_tickets(row) for row in mixture(family)]
        ids = {"processing_class": policy.tokenizer, "rows": rows, "rollout": None}
        made = with_engine(policy, family, weights, **ids | options)
        read_tickets(made, compare_every=1)
        return made

    return trainer


@pytest.mark.parametrize(
    ("family", "weights"),
    [("qwen2_5_vl", "LoRA on all parts"), ("internvl", "full"), ("idefics3", "LoRA on all parts")],
)
def test_images_of_tools(family, weights, policy_of, with_ids, monkeypatch):
    """TRL calls the tool after whatever was sampled, twice."""
    policy = policy_of(family)
    always_calls(policy, monkeypatch)
    turns = TURNS | {"environment_factory": photo_of(policy.tokenizer), "generation_kwargs": TURN}
    trainer = with_ids(policy, family, weights, **turns)
    trainer.train()
    differences, ratios = record(family, f"{weights}, images of tools", trainer, "read_tickets")
    assert flat(trainer, "tools/call_frequency") == [2.0] * 3
    assert flat(trainer, "tools/failure_frequency") == [0.0] * 3
    assert flat(trainer, "completions/max_length") == [OWN_TOKENS] * 3
    assert len(differences) == 3
    assert max(differences) < CLOSE
    assert max(abs(ratio - 1) for ratio in ratios) < CLOSE


def test_rloo_in_one_process(policy_of, with_ids, compared):
    """It takes no rollout function, and logs no log-probs of vLLM's."""
    trainer = with_ids(policy_of("qwen2_5_vl"), "qwen2_5_vl", run=_rloo)
    trainer.train()
    differences, _ = record("qwen2_5_vl", "LoRA", trainer, "read_tickets", compared)
    assert len(differences) == 3
    assert max(differences) < CLOSE


def _rloo(policy, rows, out, **options):
    options.pop("rollout")
    return rloo(policy, rows, out, **options)


def test_without_the_rollout_function_it_trains_on_garbage(policy_of, with_engine, monkeypatch):
    """What the refusal is for: TRL as it is, with the refusal taken out."""
    monkeypatch.setattr(tokenizer, "check_rollout_function", lambda processing, conversations: None)
    trainer = with_engine(policy_of("qwen2_5_vl"), "qwen2_5_vl", "full", rollout=None)
    trainer.train()
    differences, ratios = record("qwen2_5_vl", "full", trainer, "none")
    assert min(differences) > 1
    assert max(ratios) < 0.9


def test_without_the_rollout_function_it_is_refused(policy_of, with_engine):
    trainer = with_engine(policy_of("qwen2_5_vl"), "qwen2_5_vl", rollout=None)
    with pytest.raises(ValueError, match="rollout_func=vllm_rollout"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_features_of_older_weights_are_seen_at_the_second_rollout(policy_of, with_engine, monkeypatch):
    """With vLLM's encoder cache kept, a trained tower's features are stale: the comparison says so."""
    trainer = with_engine(policy_of("qwen2_5_vl"), "qwen2_5_vl", "full")
    monkeypatch.setattr(trainer.vllm_generation.llm.llm_engine, "reset_encoder_cache", lambda: None)
    with pytest.raises(UnsupportedModelError, match="vLLM did not get the weights of the last update"):
        trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.parametrize("family", SERVED)
def test_every_weight_of_the_policy_is_loaded(family, policy_of, with_engine):
    """Each of the policy's names goes somewhere, and no parameter of vLLM's is left out."""
    trainer = with_engine(policy_of(family), family, "full")
    engine = trainer.vllm_generation
    model = engine.llm.llm_engine.model_executor.driver_worker.model_runner.model
    loaded = {name: model.load_weights([(name, weight)]) for name, weight in engine._iter_named_params()}
    left_out = [name for name, into in loaded.items() if not into]
    unused = UNUSED.get(family, ())
    assert [name for name in left_out if not any(part in name for part in unused)] == []
    own = {name for name, _ in model.named_parameters()}
    assert own - {name for into in loaded.values() for name in into} == set()


def test_image_options_of_the_policy_reach_vllm(policy_of, with_engine):
    area = 28 * 28
    policy = policy_of("qwen2_5_vl", min_pixels=4 * area, max_pixels=9 * area)
    trainer = with_engine(policy, "qwen2_5_vl", max_steps=1)
    trainer.train()
    differences, _ = record("qwen2_5_vl", "LoRA, max_pixels of its own", trainer)
    assert max(differences) < CLOSE


def test_forbidden_placeholders_are_accounted_for(policy_of, with_engine):
    """Placeholders that the policy likes: none is sampled, and the log-probs are the policy's."""
    policy = policy_of("qwen2_5_vl")
    with torch.no_grad():
        policy.get_output_embeddings().weight[list(policy.placeholder_ids)] *= 5.0
    trainer = with_engine(policy, "qwen2_5_vl", "full", temperature=0.8, max_steps=1)
    trainer.train()
    differences, _ = record("qwen2_5_vl", "full, placeholders liked", trainer)
    assert max(differences) < CLOSE


def test_a_prompt_that_is_too_long_once_expanded(policy_of, with_engine):
    trainer = with_engine(policy_of("qwen2_5_vl"), "qwen2_5_vl", vllm_max_model_length=40)
    with pytest.raises(ValueError, match=r"^Row \d: the prompt has .* vllm_max_model_length"):
        trainer.train()
    assert trainer.state.global_step == 0
