"""Tool calls for every chat template: how they are written, and how they are read again.

A template that writes calls, answers of tools and images in these answers stays as it is. Any other gets a
prelude that turns them into ordinary turns first, in the form that Hermes models made common: a call is JSON
between <tool_call> marks, what the tool says is a turn of the user between <tool_response> marks.
"""

import re
from importlib import resources
from typing import Any

import jinja2

from ..errors import UnsupportedModelError
from .chat_template import end_of_turn

_NAME, _ARGUMENT, _VALUE, _SAID = "namesentinel", "keysentinel", "valuesentinel", "saidsentinel"
_CALL = {"type": "function", "function": {"name": _NAME, "arguments": {_ARGUMENT: _VALUE}}}

# `enable_tools` writes into it whether the template takes a system turn: functions are then listed there.
_PRELUDE = resources.files(__package__).joinpath("tool_calls.jinja")


def enable_tools(processing: Any) -> None:
    """Let a processing class write and read tool calls and the images that tools return.

    Its chat template and its tokenizer's `response_template` are changed where they have to be, and saved
    with it: whoever serves the model needs them.

    Raises:
        UnsupportedModelError: If its chat template cannot write them in ordinary turns either.
    """
    if processing.chat_template is None:
        raise UnsupportedModelError(
            f"{type(processing).__name__} has no chat template. Expected one; tools need turns."
        )
    if not _writes_tools(processing):
        native = processing.chat_template
        takes_system = "true" if _takes_system(processing) else "false"
        prelude = _PRELUDE.read_text(encoding="utf-8").replace("SYSTEM_TURNS", takes_system)
        processing.chat_template = prelude.rstrip("\n") + native
        if not _writes_tools(processing):
            processing.chat_template = native
            raise UnsupportedModelError(
                f"The chat template of {type(processing).__name__} does not write what turns of users and of "
                f"the assistant say, with images in any of them: {native!r}. Expected one that does."
            )
    if getattr(processing.tokenizer, "response_template", None) is None and _writes_hermes(processing):
        processing.tokenizer.response_template = _response_template(processing)


def _conversation(*blocks: dict) -> list[dict]:
    return [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "name": _NAME, "content": [{"type": "text", "text": _SAID}, *blocks]},
    ]


def _writes_tools(processing: Any) -> bool:
    """Whether the template writes a call, a tool's answer, and an image inside that answer."""
    try:
        text = processing.apply_chat_template(_conversation({"type": "image"}), tokenize=False)
    except (jinja2.TemplateError, TypeError):
        return False
    written = all(word in text for word in (_NAME, _ARGUMENT, _VALUE, _SAID))
    return written and text.count(processing.state.placeholder) == 1


def _takes_system(processing: Any) -> bool:
    messages = [
        {"role": "system", "content": [{"type": "text", "text": _SAID}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ]
    try:
        return _SAID in processing.apply_chat_template(messages, tokenize=False)
    except (jinja2.TemplateError, TypeError):
        return False


def _writes_hermes(processing: Any) -> bool:
    """Whether a call is JSON between <tool_call> marks; trainers know other forms themselves."""
    text = processing.apply_chat_template(_conversation(), tokenize=False)
    arguments = f'{{"{_ARGUMENT}": "{_VALUE}"}}'
    call = rf'<tool_call>\s*{{"name": "{_NAME}", "arguments": {arguments}}}\s*</tool_call>'
    return re.search(call, text) is not None


def _response_template(processing: Any) -> dict[str, Any]:
    """How transformers' `parse_response` reads an answer: its text, and its calls."""
    user = [{"role": "user", "content": [{"type": "text", "text": _SAID}]}]
    text = processing.apply_chat_template(user, tokenize=False, add_generation_prompt=True)
    # If the template writes nothing before an answer, the answer begins where the user's turn ends.
    asked = processing.apply_chat_template(user, tokenize=False, add_generation_prompt=False)
    announced = text[len(asked) :] if text.startswith(asked) else ""
    anchor = announced.strip() or text[text.rindex(_SAID) + len(_SAID) :].strip()
    end = end_of_turn(processing)
    tokenizer = processing.tokenizer
    eos = tokenizer.eos_token if end is None else tokenizer.convert_ids_to_tokens(end)
    return {
        "defaults": {"role": "assistant"},
        "start_anchor_pattern": rf"{re.escape(anchor)}\s*",
        "fields": {
            "tool_calls": {
                "open": "<tool_call>",
                "close_pattern": r"</tool_call>\s*",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close_pattern": rf"{re.escape(eos)}\s*", "content": "text"},
        },
    }
