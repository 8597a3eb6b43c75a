"""Where a conversation begins and where its turns end.

Some checkpoints end their turns with another token than the tokenizer's `eos_token` (Gemma 3:
`<end_of_turn>` against `<eos>`) and say so only in generation_config.json. Trainers cut completions
at `tokenizer.eos_token_id`, so with the wrong one they train on padding after the answer.
"""

import itertools
from typing import Any

import jinja2

_ANSWER = "x"
_TURNS = [
    {"role": "user", "content": [{"type": "text", "text": _ANSWER}]},
    {"role": "assistant", "content": [{"type": "text", "text": _ANSWER}]},
]


def end_of_turn(processor: Any) -> int | None:
    """The special token that the chat template writes right after an answer.

    Args:
        processor: A native processor with a tokenizer.

    Returns:
        Its id, or None if there is no chat template or something else follows the answer.
    """
    if processor.chat_template is None:
        return None
    text = processor.apply_chat_template(_TURNS)
    after = text[text.rindex(_ANSWER) + len(_ANSWER) :].lstrip()
    ids = processor.tokenizer(after, add_special_tokens=False)["input_ids"] if after else []
    return ids[0] if ids and ids[0] in processor.tokenizer.added_tokens_decoder else None


def opening_after_bos(processor: Any) -> str | None:
    """The text that every conversation begins with, if the tokenizer and not the template puts bos first.

    Trainers take such text from the template and tokenize it without special tokens, since most
    templates write bos themselves. Here it would be lost, although generation has it.

    Args:
        processor: A native processor with a tokenizer.

    Returns:
        The text; None if the template writes bos, or the tokenizer does not.
    """
    bos = processor.tokenizer.bos_token
    if processor.chat_template is None or bos is None:
        return None
    if processor.tokenizer(_ANSWER)["input_ids"][:1] != [processor.tokenizer.bos_token_id]:
        return None
    text = processor.apply_chat_template(_TURNS)
    if text.startswith(bos):
        return None
    try:
        system = processor.apply_chat_template([{**_TURNS[0], "role": "system"}, *_TURNS])
    except jinja2.TemplateError:  # the template refuses system messages
        system = text
    user = processor.apply_chat_template([{**_TURNS[0], "content": [{"type": "text", "text": "y"}]}])
    alike = itertools.takewhile(lambda at: len(set(at)) == 1, zip(text, system, user, strict=False))
    return "".join(at[0] for at in alike) or None
