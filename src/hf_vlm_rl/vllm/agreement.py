"""Whether vLLM computes what the policy computes, asked at some rollouts.

Equal prompts do not make equal models: an engine may implement a class otherwise than transformers does, or
not have got the weights that were trained since.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import UnsupportedModelError
from ..policy.eval_mode import evaluating
from ..policy.ranks import is_sharded
from ..processing.tickets.beside_ids import pack
from .prompts import EnginePrompt

# Mean difference of log-probs: rounding to bfloat16 makes hundredths, another prompt or model 1 and more.
MOST = 0.3

# The same where both compute in float32, whose rounding makes millionths.
MOST_FLOAT32 = 1e-3


def samples_from_all_tokens(engine: Any) -> bool:
    """Whether vLLM samples from the policy's distribution: nothing is cut off, and nothing penalized."""
    given = engine.generation_kwargs or {}
    settings = {
        name: given.get(name, getattr(engine, name))
        for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    }
    usual = {"top_p": (1.0,), "top_k": (0, -1, None), "min_p": (0.0, None), "repetition_penalty": (1.0,)}
    others = set(given) - set(settings) - {"seed", "n", "stop", "stop_token_ids"}
    known = all(settings[name] in values for name, values in usual.items())
    return known and not others and settings["temperature"] > 0


def engine_dtype(trainer: Any) -> torch.dtype | None:
    """What the engine computes in; None for a server, which does not say."""
    engine = trainer.vllm_generation
    return engine.llm.llm_engine.model_config.dtype if engine.mode == "colocate" else None


@torch.no_grad()
def check_agreement(
    trainer: Any,
    rows: Sequence[EnginePrompt],
    completions: Sequence[Sequence[int]],
    sampled: Sequence[Sequence[float | None]],
    temperature: float,
) -> None:
    """Compare the log-probs of one completion with those of the policy's forward.

    Of B prompts, the one with the most images is taken. The trainer's model has the weights that the engine
    was given; sharded ones are not asked. `sampled` are log-probs of logits divided by `temperature`.

    Raises:
        UnsupportedModelError: If they are another model's, or another prompt's.
    """
    model = trainer.model
    if is_sharded(trainer.model_wrapped):
        return
    row = max(range(len(rows)), key=lambda index: len(rows[index].images))
    known = [place for place, value in enumerate(sampled[row]) if value is not None]
    prompt, completion = rows[row], list(completions[row])
    if not known:
        return
    device = trainer.accelerator.device
    inputs = {"input_ids": torch.tensor([prompt.ids + completion], device=device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if prompt.carried:
        inputs |= {name: tensor.to(device) for name, tensor in pack(list(prompt.carried)).items()}
    with evaluating(model):
        logits = model(**inputs, use_cache=False).logits[0, len(prompt.ids) - 1 : -1]
    own = (logits.float() / temperature).log_softmax(-1)
    own = own.gather(-1, torch.tensor(completion, device=device)[:, None])[:, 0].cpu()
    theirs = torch.tensor([sampled[row][place] for place in known])
    difference = float((own[known] - theirs).abs().mean())
    most = MOST_FLOAT32 if engine_dtype(trainer) is torch.float32 and model.dtype is torch.float32 else MOST
    if not difference <= most:  # nan is none either
        raise UnsupportedModelError(
            f"Row {row}: vLLM's log-probs differ by {difference:.2g} a token from those of the policy, for "
            f"the same prompt with {len(prompt.images)} images. Expected less than {most}: vLLM computes "
            "another model. Update vLLM, or set use_vllm=False; docs/vllm.md says which families were run. "
            "If earlier rollouts agreed, vLLM did not get the weights of the last update."
        )
