"""A vLLM server: images are processed there first, and their features then placed in the trainer's ids."""

import itertools
from collections.abc import Sequence
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from ..errors import ImageError
from .prompts import EnginePrompt


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
        ImageError: If the server makes other tokens of a row's images. The message names the row.
        ValueError: If a prompt's completions are spread over processes unevenly.
    """
    engine, accelerator = trainer.vllm_generation, trainer.accelerator
    generations = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    everyone = gather_object(list(rows))
    placeholder = trainer.processing_class.state.placeholder_id
    answer = _answer(engine, everyone, generations, placeholder) if accelerator.is_main_process else None
    (answer,) = broadcast_object_list([answer], from_process=0)
    own = slice(accelerator.process_index * len(rows), (accelerator.process_index + 1) * len(rows))
    return tuple(part[own] for part in answer)


def _answer(
    engine: Any, rows: list[EnginePrompt], generations: int, placeholder: int
) -> tuple[list, list, list]:
    distinct = rows[::generations]
    for row, prompt in enumerate(rows):
        if prompt.ids != distinct[row // generations].ids:
            raise ValueError(
                f"Row {row} has another prompt than row {row - row % generations}. Expected each prompt "
                f"{generations} times (num_generations) in a row, over all processes."
            )
    features = [None] * len(distinct)
    if any(prompt.images for prompt in distinct):
        features = engine.vllm_client.image_features([list(prompt.images) or None for prompt in distinct])
    placed = [
        placed_features(row * generations, prompt, of_prompt, placeholder)
        for row, (prompt, of_prompt) in enumerate(zip(distinct, features, strict=True))
    ]
    output = engine.vllm_client.generate(
        prompts=[prompt.ids for prompt in distinct],
        features=placed if any(placed) else None,
        n=generations,
        repetition_penalty=engine.repetition_penalty,
        temperature=engine.temperature,
        top_p=engine.top_p,
        top_k=engine.top_k,
        min_p=0.0 if engine.min_p is None else engine.min_p,
        max_tokens=engine.max_completion_length,
        logprobs=engine.logprobs,
        structured_outputs_regex=engine.structured_outputs_regex,
        generation_kwargs=engine.generation_kwargs,
    )
    return output["completion_ids"], output["logprobs"], output["logprob_token_ids"]


def placed_features(row: int, prompt: EnginePrompt, features: dict | None, placeholder: int) -> dict | None:
    """Point a server's image features at their places in a prompt's ids.

    TRL's client returns where the images lie in a conversation of nothing else. `placeholder` is the id of
    one image feature.

    Raises:
        ImageError: If the server makes other tokens of the images than the policy, or an image's tokens
            are not in one run, which the server's interface cannot say.
    """
    if features is None:
        return None
    said = [place["length"] for place in features["mm_placeholders"]["image"]]
    replaced = len(prompt.ids) - len(prompt.short_ids) + len(prompt.images)
    if len(said) != len(prompt.images) or sum(said) != replaced:
        raise ImageError(
            f"the server makes {said} tokens of its images, and the policy {replaced} of all "
            f"{len(prompt.images)}. Start the server with the policy's image options "
            "(--mm-processor-kwargs).",
            row,
        )
    runs, start = [], 0
    for token, group in itertools.groupby(prompt.ids):
        length = len(list(group))
        if token == placeholder:
            runs.append({"offset": start, "length": length})
        start += length
    lengths = [run["length"] for run in runs]
    if lengths != list(prompt.lengths):
        raise ImageError(
            f"its images have {list(prompt.lengths)} tokens, in runs of {lengths}. A vLLM server takes "
            "one run for each image; use vllm_mode='colocate'.",
            row,
        )
    return {**features, "mm_placeholders": {**features["mm_placeholders"], "image": runs}}
