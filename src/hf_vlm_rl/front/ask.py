"""One prompt to vLLM's `/inference/v1/generate`: ids with one placeholder an image, and the images beside."""

import base64
import io
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import PIL.Image

from ..processing.tokenizer import VLMTokenizer
from .prompts import EnginePrompt, check_same_prompt
from .servers import Answer, Servers

PATH = "/inference/v1/generate"


class RefusedError(Exception):
    """Another answer than 200, with the status that it has."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


def content_part(image: PIL.Image.Image) -> dict[str, Any]:
    """An upright RGB image as vLLM takes it beside ids."""
    content = io.BytesIO()
    image.save(content, format="PNG", compress_level=1)
    return {
        "type": "image_url",
        "url": f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}",
    }


async def ask(
    servers: Servers,
    processing: VLMTokenizer,
    row: int,
    prompt: EnginePrompt,
    parts: Sequence[Mapping[str, Any]],
    model: str | None,
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """What vLLM answers to a prompt, which it saw as the policy does, and as `url` the server that did.

    `parts` are the prompt's images, as `content_part` gives them; `sampling` has arguments of vLLM's
    `SamplingParams`.

    Raises:
        ImageError: If vLLM saw another prompt.
        RefusedError: If it refuses.
        ServersLostError: If no server can be reached.
    """
    body: dict[str, Any] = {
        "model": model,
        "request_id": f"hf-vlm-rl-{uuid.uuid4().hex}",
        "token_ids": prompt.short_ids,
        # FINAL_ONLY: otherwise only those of n completions come back that ended last.
        "sampling_params": {**sampling, "output_kind": 2},
        "return_token_ids": True,
    }
    if parts:
        body["content_parts"] = list(parts)
    answer = await servers.ask("POST", PATH, json=body)
    if answer.status >= 500 or _failed(answer.json()):
        # While weights are sent, vLLM may forget an image between its processing and its first step.
        answer = await servers.ask("POST", PATH, but=answer.url, json=body)
    content = checked(answer, f"{PATH} for row {row}")
    if _failed(content):
        raise RefusedError(
            f"vLLM at {answer.url} ended a completion of row {row} by an error of its own.", 500
        )
    check_same_prompt(processing, prompt, content.get("prompt_token_ids"), row)
    choices = sorted(content["choices"], key=lambda choice: choice["index"])
    return {**content, "url": answer.url, "choices": choices}


def _failed(body: Any) -> bool:
    """Whether vLLM ended a completion by an error, which it answers with 200."""
    choices = body.get("choices") if isinstance(body, dict) else None
    return any(choice.get("finish_reason") == "error" for choice in choices or ())


def checked(answer: Answer, path: str) -> Any:
    """The JSON of an answer.

    Raises:
        RefusedError: If the server refused, or its answer is none.
    """
    body = answer.json()
    if answer.status == 200 and body is not None:
        return body
    hint = " Expected vLLM 0.28 or newer; from 0.30 on, start it with --enable-scale-out."
    raise RefusedError(
        f"vLLM at {answer.url} answered {answer.status} to {path}: "
        f"{answer.content[:2000].decode(errors='replace')}{hint if answer.status == 404 else ''}",
        502 if answer.status == 200 else answer.status,
    )


def raw_logprobs(choice: Mapping[str, Any]) -> tuple[list[list[float]], list[list[int]]]:
    """Log-probs of C sampled tokens and of those asked for beside each, and whose they are."""
    values, tokens = [], []
    for entry in choice["logprobs"]["content"]:
        tops = {entry["token"]: entry["logprob"]}
        tops |= {top["token"]: top["logprob"] for top in entry["top_logprobs"]}
        values.append(list(tops.values()))
        tokens.append([int(token.removeprefix("token_id:")) for token in tops])
    return values, tokens
