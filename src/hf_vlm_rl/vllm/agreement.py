"""Whether the trainer's vLLM computes what the policy computes, asked at some rollouts."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..front.agreement import is_uncut
from ..front.prompts import EnginePrompt
from ..policy.serving import compare


def sampling_of(engine: Any) -> Mapping[str, Any]:
    """The settings that TRL's `VLLMGeneration` samples with."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return {name: getattr(engine, name) for name in names} | (engine.generation_kwargs or {})


def samples_from_all_tokens(engine: Any) -> bool:
    """Whether vLLM samples from the policy's distribution: nothing is cut off, and nothing penalized."""
    return is_uncut(sampling_of(engine))


def engine_dtype(trainer: Any) -> str:
    """What the engine computes in, as `float32` or `torch.float32`; "" if it does not say."""
    engine = trainer.vllm_generation
    if engine.mode == "colocate":
        return str(engine.llm.llm_engine.model_config.dtype)
    return str(engine.vllm_client.get_server_info()["model_config"].get("dtype", ""))


def check_agreement(
    trainer: Any,
    rows: Sequence[EnginePrompt],
    completions: Sequence[Sequence[int]],
    sampled: Sequence[Sequence[float | None]],
    temperature: float,
) -> None:
    """Compare the log-probs of one completion with those of the policy's forward.

    Of B prompts, the one with the most images is taken. `sampled` are log-probs of logits divided by
    `temperature`.

    Raises:
        UnsupportedModelError: If they are another model's, or another prompt's.
    """
    row = max(range(len(rows)), key=lambda index: len(rows[index].images))
    one = (row, rows[row], completions[row], sampled[row], temperature, engine_dtype(trainer))
    compare(trainer.model, *one, wrapped=trainer.model_wrapped)
