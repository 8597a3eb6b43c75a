"""A vLLM server that TRL's trainer knows: each prompt goes there with its images, in one request."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from accelerate.utils import gather_object

from .._ranks import from_first
from ..errors import ImageError
from ..front.ask import RefusedError, ask, content_part, raw_logprobs
from ..front.prompts import EnginePrompt
from ..front.servers import Servers
from ..processing.tokenizer import VLMTokenizer

# What its processes do, for the error that the others get when the first one fails.
TASK = "The rollout"


def reset_server(engine: Any) -> None:
    """Drop what a vLLM server keeps of images; for the main process.

    Raises:
        ConnectionError: If the server does not.
    """
    client = engine.vllm_client
    response = client.session.post(f"{client.base_url}/reset_encoder_cache")
    if response.status_code != 200:
        raise ConnectionError(
            f"The vLLM server at {client.base_url} answered {response.status_code} to /reset_encoder_cache. "
            "Expected 200: start it with VLLM_SERVER_DEV_MODE=1, as TRL's weight synchronization needs too."
        )


def ask_server(trainer: Any, rows: Sequence[EnginePrompt]) -> tuple[list, list, list]:
    """Completions of a server, their log-probs and whose those are, for this process's B prompts.

    The trainer's main process asks, for all.

    Raises:
        ImageError: If the server saw another prompt, or refuses it. The message names the row.
        ValueError: If a prompt's completions are spread over processes unevenly.
    """
    accelerator = trainer.accelerator
    generations = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    everyone = gather_object(list(rows))
    engine, processing = trainer.vllm_generation, trainer.processing_class
    answer = from_first(lambda: _answer(engine, processing, everyone, generations), TASK)
    own = slice(accelerator.process_index * len(rows), (accelerator.process_index + 1) * len(rows))
    completions, logprobs, tokens = answer
    return completions[own], logprobs[own], tokens[own]


def _answer(
    engine: Any, processing: VLMTokenizer, rows: list[EnginePrompt], generations: int
) -> tuple[list, list, list]:
    distinct = rows[::generations]
    for row, prompt in enumerate(rows):
        if prompt.ids != distinct[row // generations].ids:
            raise ValueError(
                f"Row {row} has another prompt than row {row - row % generations}. Expected each prompt "
                f"{generations} times (num_generations) in a row, over all processes."
            )
    sampling = {
        "n": generations,
        "repetition_penalty": engine.repetition_penalty,
        "temperature": engine.temperature,
        "top_p": engine.top_p,
        "top_k": engine.top_k,
        "min_p": 0.0 if engine.min_p is None else engine.min_p,
        "max_tokens": engine.max_completion_length,
        "logprobs": engine.logprobs,
    }
    if engine.structured_outputs_regex is not None:
        sampling["structured_outputs"] = {"regex": engine.structured_outputs_regex}
    sampling |= engine.generation_kwargs
    client = engine.vllm_client
    # In a thread of its own: notebooks have an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        asked = _ask_all(client.base_url, client.model, processing, distinct, generations, sampling)
        choices = thread.submit(asyncio.run, asked).result()
    values, tokens = zip(*map(raw_logprobs, choices), strict=True)
    return [choice["token_ids"] for choice in choices], list(values), list(tokens)


async def _ask_all(
    url: str,
    model: str,
    processing: VLMTokenizer,
    prompts: Sequence[EnginePrompt],
    generations: int,
    sampling: Mapping[str, Any],
) -> list[dict]:
    """The choices of all prompts, those of one side by side."""
    servers = Servers((url,))

    async def one(index: int, prompt: EnginePrompt) -> list[dict]:
        row, parts = index * generations, [content_part(image) for image in prompt.images]
        try:
            answer = await ask(servers, processing, row, prompt, parts, model, sampling)
        except RefusedError as error:
            raise ImageError(str(error), row) from error
        return answer["choices"]

    try:
        answers = await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts)))
    finally:
        await servers.close()
    return [choice for choices in answers for choice in choices]
