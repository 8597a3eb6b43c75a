"""`vllm_rollout`: what TRL's `GRPOTrainer` takes as its rollout function."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from .._ranks import from_first
from ..errors import ImageError
from ..front.placeholders import never_sampled, sampled_logprobs
from ..front.prompts import EnginePrompt, check_same_prompt, encode_prompts
from .agreement import check_agreement, samples_from_all_tokens
from .checks import (
    changed_options,
    check_lengths,
    check_model,
    check_server,
    check_tools,
    check_trainer,
    tell_engine,
)
from .server import TASK, ask_server, reset_server

# Engines that were checked and know the policy's image options, and how many rollouts they have made.
_rollouts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def vllm_rollout(
    prompts: Sequence[str | Sequence[Mapping]], trainer: Any, compare_every: int = 20
) -> dict[str, list]:
    """Sample completions with TRL's vLLM, from the prompts that the policy trains on.

    `GRPOTrainer(..., rollout_func=vllm_rollout, args=GRPOConfig(use_vllm=True, ...))`. TRL synchronizes the
    weights before it calls this.

    Args:
        prompts: B prompts, images inside; each stands there once for each of its completions.
        trainer: Of a policy, with `use_vllm=True`.
        compare_every: vLLM's log-probs of one completion are compared with the policy's at the first rollout,
            at the second, which is the first with weights that were sent, and then at each so many-th, >= 1:
            `rollout_func=functools.partial(vllm_rollout, compare_every=5)`.

    Returns:
        `prompt_ids`: B lists, images expanded. `completion_ids`: B lists. `logprobs`: B lists of the sampled
        tokens' log-probs in the trainer's distribution, the whole vocabulary.

    Raises:
        ImageError: If vLLM saw another prompt than the policy, or refuses one. The message names the row.
        ImportError: If vLLM's version is none of those that TRL works with.
        UnsupportedModelError: If vLLM loaded another kind of model, or computes another.
        ValueError: If the trainer's settings cannot be served, or `compare_every` is no such number.
    """
    if compare_every < 1:
        raise ValueError(f"Got {compare_every=}. Expected a number of rollouts, 1 or more.")
    check_trainer(trainer)
    engine, processing = trainer.vllm_generation, trainer.processing_class
    colocated = engine.mode == "colocate"
    rollouts = _rollouts.get(engine, 0)
    if not rollouts:
        _make_ready(trainer, colocated)
    template = {"tools": trainer.tools or None, "chat_template": trainer.chat_template}
    rows = encode_prompts(processing, prompts, template | trainer.chat_template_kwargs)
    longest = engine.llm.llm_engine.model_config.max_model_len if colocated else engine.max_model_length
    check_tools(trainer, rows)
    check_lengths(rows, longest)
    # What vLLM keeps of images was computed with the weights before the last synchronization.
    if colocated:
        engine.llm.llm_engine.reset_encoder_cache()
    else:
        from_first(lambda: reset_server(engine), TASK)
    placeholders = processing.state.never_sampled
    with never_sampled(engine, placeholders):
        completions, logprobs, tokens = (_ask if colocated else ask_server)(trainer, rows)
    temperature = (engine.generation_kwargs or {}).get("temperature", engine.temperature)
    sampled = [
        sampled_logprobs(*completion, placeholders, temperature, row)
        for row, completion in enumerate(zip(completions, logprobs, tokens, strict=True))
    ]
    # At first LoRA's B is zero and all weights are the checkpoint's, which vLLM has loaded by itself.
    if (rollouts == 1 or rollouts % compare_every == 0) and samples_from_all_tokens(engine):
        check_agreement(trainer, rows, completions, sampled, temperature)
    _rollouts[engine] = rollouts + 1
    return {
        "prompt_ids": [row.ids for row in rows],
        "completion_ids": [list(ids) for ids in completions],
        "logprobs": sampled,
    }


def _make_ready(trainer: Any, colocated: bool) -> None:
    engine = trainer.vllm_generation
    # What TRL starts vLLM with, and what a server should have been started with.
    options = changed_options(trainer.processing_class, trainer.model.name_or_path)
    if colocated:
        check_model(trainer)
        tell_engine(engine, options)
    else:
        from_first(lambda: check_server(engine, options), TASK)


def _ask(trainer: Any, rows: Sequence[EnginePrompt]) -> tuple[Sequence, Sequence, Sequence]:
    """Completions of the vLLM in this process, their log-probs and whose those are.

    Raises:
        ImageError: If vLLM refuses a prompt, or saw another one.
    """
    images = [list(row.images) or None for row in rows]
    generations = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    try:
        seen, *answer = trainer.vllm_generation.generate(
            prompts=[row.short_ids for row in rows],
            images=images if any(images) else None,
            num_generations=generations,
        )
    except ValueError as error:
        sizes = sorted({image.size for row in rows for image in row.images})
        raise ImageError(
            f"vLLM refuses a batch of {len(rows)} prompts with images of {sizes} pixels: {error} Where an "
            "image is too large for it, lower the image processor's max_pixels or number of tiles."
        ) from error
    for index, (row, ids) in enumerate(zip(rows, seen, strict=True)):
        check_same_prompt(trainer.processing_class, row, ids, index)
    return tuple(answer)
