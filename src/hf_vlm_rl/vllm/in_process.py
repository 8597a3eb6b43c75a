"""vLLM in the process of a trainer that sends it ids with tickets: it is asked with the images.

What a front is for servers, `read_tickets` is for this process: a trainer that has TRL's `VLLMGeneration`
runs as it is, its loop for tools included.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..compat import require_vllm_of_trl
from ..errors import ImageError
from ..front.placeholders import sampled_logprobs, sampling_arguments
from ..front.prompts import EnginePrompt, check_same_prompt, read_prompt
from ..processing.ids.tokenizer import IdsTokenizer
from .agreement import check_agreement, samples_from_all_tokens
from .checks import changed_options, check_lengths, check_model, tell_engine

# What a trainer may have set, and vLLM has to be asked with besides.
LOG_PROBS = ("logit_bias", "logprob_token_ids", "logprobs")


class TicketEngine:
    """vLLM's `LLM` of a trainer; it reads the tickets in ids, and is the engine in everything else."""

    def __init__(self, trainer: Any, compare_every: int):
        self._trainer, self._engine = trainer, trainer.vllm_generation.llm
        self._tokenizer, self._compare_every = trainer.processing_class, compare_every
        self.ticket_salt: int = self._tokenizer.processing_class.codec.salt
        self._updates, self._due = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def reset_prefix_cache(self, *arguments: Any, **options: Any) -> Any:
        """Drop what older weights made, features of images too; trainers call it after they sent weights."""
        self._engine.llm_engine.reset_encoder_cache()
        # The first weights are the checkpoint's, which vLLM has loaded by itself.
        self._due = self._updates == 1 or self._updates % self._compare_every == 0
        self._updates += 1
        return self._engine.reset_prefix_cache(*arguments, **options)

    def generate(self, prompts: Sequence[Mapping[str, Any]], sampling_params: Any, **options: Any) -> Any:
        """Answer B prompts of ids with tickets; log-probs are those of the whole vocabulary.

        Raises:
            ImageError: If vLLM saw another prompt than the policy, or refuses one. The message names the row.
            TicketError: If a ticket is damaged, cut or unknown.
            UnsupportedModelError: If vLLM computes another model.
            ValueError: If log-probs are asked for besides those of the sampled tokens.
        """
        ids = [list(prompt["prompt_token_ids"]) for prompt in prompts]
        rows = [read_prompt(self._tokenizer, row, row_ids) for row, row_ids in enumerate(ids)]
        check_lengths(rows, self._engine.llm_engine.model_config.max_model_len)
        processing = self._tokenizer.processing_class
        never, asked = processing.state.never_sampled, sampling_params.clone()
        settings = {name: getattr(asked, name) for name in LOG_PROBS}
        for name, value in sampling_arguments(never, settings).items():
            setattr(asked, name, value)
        try:
            answers = self._engine.generate([_request(row) for row in rows], asked, **options)
        except ValueError as error:
            sizes = sorted({image.size for row in rows for image in row.images})
            raise ImageError(f"vLLM refuses prompts with images of {sizes} pixels: {error}") from error
        sampled = []
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            check_same_prompt(processing, row, answer.prompt_token_ids, index)
            answer.prompt_token_ids = ids[index]
            first, *_ = [_sampled(each, never, asked.temperature, index) for each in answer.outputs]
            sampled.append(first)
        if self._due and samples_from_all_tokens(self._trainer.vllm_generation):
            completions = [answer.outputs[0].token_ids for answer in answers]
            check_agreement(self._trainer, rows, completions, sampled, asked.temperature)
        self._due = False
        return answers


def read_tickets(trainer: Any, compare_every: int = 20) -> None:
    """Let the vLLM in a trainer's process read the tickets in ids; call it before `trainer.train()`.

    Images come from the rows (`policy.tokenizer.with_tickets`) and from what tools return
    (`policy.tokenizer.mark(image)`).

    Args:
        trainer: TRL's, with a policy, `processing_class=policy.tokenizer`, `use_vllm=True` and
            `vllm_mode="colocate"`.
        compare_every: vLLM's log-probs of one completion are compared with the policy's after weights were
            sent for the first time, for the second, and then for each so many-th, >= 1.

    Raises:
        ImportError: If vLLM's version is none of those that TRL works with.
        TypeError: If its processing class is not a policy's tokenizer.
        UnsupportedModelError: If vLLM loaded another kind of model.
        ValueError: If its vLLM is in another process or reads tickets already, or `compare_every` is no such
            number.
    """
    if compare_every < 1:
        raise ValueError(f"Got {compare_every=}. Expected a number of updates, 1 or more.")
    engine = getattr(trainer, "vllm_generation", None)  # trainers without use_vllm have none
    if engine is None or engine.mode != "colocate":
        raise ValueError(
            f"Got a {type(trainer).__name__} without a vLLM of TRL's VLLMGeneration in its process. Expected "
            "use_vllm=True and vllm_mode='colocate' (GRPO, RLOO); for servers there is policy.serving."
        )
    if not isinstance(trainer.processing_class, IdsTokenizer):
        raise TypeError(
            f"Got a processing_class of type {type(trainer.processing_class).__name__}. Expected "
            "processing_class=policy.tokenizer, or rollout_func=vllm_rollout with policy.processing_class."
        )
    if isinstance(engine.llm, TicketEngine):
        raise ValueError(
            "Got a trainer whose vLLM reads tickets already. Expected one call for each trainer."
        )
    if "vllm" in sys.modules:  # imported by TRL, and not everywhere installed under this name
        require_vllm_of_trl(sys.modules["vllm"].__version__)
    check_model(trainer)
    processing = trainer.processing_class.processing_class
    tell_engine(engine, changed_options(processing, trainer.model.name_or_path))
    engine.llm = TicketEngine(trainer, compare_every)


def _request(prompt: EnginePrompt) -> dict[str, Any]:
    """A prompt as vLLM's `LLM` takes it."""
    request: dict[str, Any] = {"prompt_token_ids": prompt.short_ids}
    if prompt.images:
        request["multi_modal_data"] = {"image": list(prompt.images)}
    return request


def _sampled(completion: Any, never: Sequence[int], temperature: float, row: int) -> Sequence[float | None]:
    """Log-probs of a completion's tokens without the bias; vLLM's completion has no others then."""
    token_ids, positions = list(completion.token_ids), completion.logprobs
    tokens = [list(position) for position in positions]
    values = [[each.logprob for each in position.values()] for position in positions]
    sampled = sampled_logprobs(token_ids, values, tokens, never, temperature, row)
    completion.logprobs = []
    for token, value, position in zip(token_ids, sampled, positions, strict=True):
        position[token].logprob = value
        completion.logprobs.append({token: position[token]})
    return sampled
