"""A request of `/v1/completions` whose ids carry tickets, and the answer that its sender expects.

vLLM's `/v1/completions` carries no images. `/inference/v1/generate` does, for one prompt at a time: a request
of B prompts becomes B of those, and their answers become one again.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..processing.ids.tokenizer import IdsTokenizer
from .ask import raw_logprobs
from .placeholders import sampled_logprobs, sampling_arguments
from .prompts import EnginePrompt, read_prompt

# What both endpoints know, under the same names. Anything else is refused.
SAMPLING = {
    *("allowed_token_ids", "bad_words", "frequency_penalty", "ignore_eos", "include_stop_str_in_output"),
    *("logit_bias", "max_tokens", "min_p", "min_tokens", "n", "presence_penalty", "prompt_logprobs"),
    *("repetition_penalty", "seed", "skip_special_tokens", "stop", "stop_token_ids"),
    *("structured_outputs", "temperature", "top_k", "top_p"),
}
BESIDE = {
    *("add_special_tokens", "logprobs", "model", "prompt"),
    *("return_token_ids", "return_tokens_as_token_ids"),
}
# As `/v1/completions` has them; the other endpoint has others, or the checkpoint's.
DEFAULTS = {"max_tokens": 16, "temperature": 1.0}
# What is computed with here: the types that each may have, and the least value.
FLAGS = ("add_special_tokens", "return_token_ids", "return_tokens_as_token_ids", "skip_special_tokens")
TYPES: dict[str, tuple[tuple[type, ...], int]] = dict.fromkeys(FLAGS, ((bool,), False))
TYPES |= {"max_tokens": ((int,), 1), "n": ((int,), 1), "temperature": ((int, float), 0)}

LOWEST_TEMPERATURE = 0.01


@dataclass(frozen=True)
class Request:
    """B prompts and how to answer them.

    Attributes:
        ids: B rows of ids, with tickets, as they came.
        prompts: The same B prompts, as vLLM takes them.
        sampling: Arguments of vLLM's `SamplingParams`.
        body: What was asked for, as it came, without nulls.
    """

    ids: list[list[int]]
    prompts: list[EnginePrompt]
    sampling: dict[str, Any]
    body: Mapping[str, Any]


def read_request(tokenizer: IdsTokenizer, body: Any, longest: int | None, compared: bool = False) -> Request:
    """Read the body of a request, and all of its tickets.

    Prompts are ids or texts, one or several. `longest` is the most tokens of prompt and completion;
    `compared`: vLLM has to give log-probs, asked for or not.

    Raises:
        ImageError: If an image cannot be sent.
        TicketError: If a ticket is damaged, cut or unknown.
        ValueError: If a value cannot be had for prompts with images, or a prompt is too long.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"Got a JSON {type(body).__name__}. Expected an object.")
    body = {name: value for name, value in body.items() if value is not None}
    asked = {name: value for name, value in body.items() if value not in (False, "", [], {})}
    if unknown := sorted(set(asked) - SAMPLING - BESIDE):
        raise ValueError(f"Got {unknown}. Expected no more than {sorted(SAMPLING | BESIDE)}.")
    for name, (types, least) in TYPES.items():
        value = body.get(name, least)
        if type(value) not in types or not least <= value < 2**31:
            raise ValueError(f"Got {name}={value!r}. Expected {types[-1].__name__}, {least} to 2**31.")
    if 0 < body.get("temperature", 1) < LOWEST_TEMPERATURE:
        raise ValueError(
            f"Got temperature={body['temperature']}. Expected 0, or {LOWEST_TEMPERATURE} or more: vLLM "
            "raises what lies between."
        )
    if body.get("logprobs", 0) != 0:
        raise ValueError(
            f"Got logprobs={body['logprobs']}. Expected 0, the sampled tokens', or none: those of other "
            "tokens are used up to take the bias of placeholders out."
        )
    ids = _rows(tokenizer, body)
    prompts = [read_prompt(tokenizer, row, row_ids) for row, row_ids in enumerate(ids)]
    settings = {name: value for name, value in body.items() if name in SAMPLING}
    sampling = sampling_arguments(tokenizer.processing_class.state.never_sampled, DEFAULTS | settings)
    if "logprobs" not in body and not compared:
        sampling = {name: sampling[name] for name in sampling if not name.startswith("logprob")}
    for row, prompt in enumerate(prompts):
        tokens = len(prompt.ids) + sampling["max_tokens"]
        if longest is not None and tokens > longest:
            raise ValueError(
                f"Row {row}: its prompt has {len(prompt.ids)} tokens, {sum(prompt.lengths)} of them of "
                f"images, and max_tokens is {sampling['max_tokens']}. Expected {longest} together at most, "
                "the server's --max-model-len."
            )
    return Request(ids, prompts, sampling, body)


def _rows(tokenizer: IdsTokenizer, body: Mapping[str, Any]) -> list[list[int]]:
    prompt = body.get("prompt")
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    rows: Any = prompt if several else [prompt]
    if all(isinstance(row, str) for row in rows):
        special = body.get("add_special_tokens", True)
        return [tokenizer(row, add_special_tokens=special)["input_ids"] for row in rows]
    for row, ids in enumerate(rows):
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise ValueError(f"Row {row} of `prompt` is no list of ids. Expected ids, or texts alone.")
    return rows


def completions(
    request: Request, tokenizer: IdsTokenizer, answers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The answer to a request of B prompts: B * n choices, those of a prompt side by side.

    Log-probs are of the whole vocabulary, placeholders included.

    Raises:
        ImageError: If a placeholder was sampled.
        UnsupportedModelError: If log-probs are missing.
    """
    choices, used = list[dict](), 0
    for row, answer in enumerate(answers):
        for choice in answer["choices"]:
            item = _choice(request, tokenizer, row, choice)
            choices.append({**item, "index": len(choices), "prompt_logprobs": answer.get("prompt_logprobs")})
            used += len(choice["token_ids"])
    prompt_tokens = sum(len(prompt.ids) for prompt in request.prompts)
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": request.body.get("model"),
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": used,
            "total_tokens": prompt_tokens + used,
        },
    }


def logprobs_of_sampled(
    request: Request, tokenizer: IdsTokenizer, row: int, choice: Mapping[str, Any]
) -> list[float | None]:
    """Log-probs of the C tokens of one of a row's completions, in the whole vocabulary."""
    values, tokens = raw_logprobs(choice)
    never = tokenizer.processing_class.state.never_sampled
    temperature = request.sampling["temperature"]
    return sampled_logprobs(choice["token_ids"], values, tokens, never, temperature, row)


def _choice(request: Request, tokenizer: IdsTokenizer, row: int, choice: Mapping[str, Any]) -> dict[str, Any]:
    stock, body, ids = tokenizer.processing_class.tokenizer, request.body, choice["token_ids"]
    skip = body.get("skip_special_tokens", True)
    text, stop = stock.decode(ids, skip_special_tokens=skip), None
    if choice.get("finish_reason") == "stop":
        last = len(text) - len(stock.decode(ids[:-1], skip_special_tokens=skip))
        text, stop = _cut(text, last, body)
    stop = choice.get("stop_reason") or stop
    item = {"text": text, "logprobs": None, "finish_reason": choice.get("finish_reason"), "stop_reason": stop}
    if body.get("return_token_ids"):
        item |= {"token_ids": ids, "prompt_token_ids": request.ids[row]}
    if "logprobs" in body:
        sampled = logprobs_of_sampled(request, tokenizer, row, choice)
        as_ids = body.get("return_tokens_as_token_ids")
        names = [f"token_id:{token}" if as_ids else stock.decode([token]) for token in ids]
        item["logprobs"] = {
            "tokens": names,
            "token_logprobs": sampled,
            "top_logprobs": [{name: value} for name, value in zip(names, sampled, strict=True)],
            "text_offset": [],
        }
    return item


def _cut(text: str, last: int, body: Mapping[str, Any]) -> tuple[str, str | None]:
    """A text, whose last token has `last` characters, up to the `stop` that ended it; and that string."""
    stops = body.get("stop") or []
    for stop in [stops] if isinstance(stops, str) else stops:
        place = text.find(stop, max(0, len(text) + 1 - last - len(stop)))
        if stop and place >= 0:
            return text[: place + len(stop) * bool(body.get("include_stop_str_in_output"))], stop
    return text, None
