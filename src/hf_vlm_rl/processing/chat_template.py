"""Where the turns of a conversation end.

Some checkpoints end their turns with another token than the tokenizer's `eos_token` (Gemma 3:
`<end_of_turn>` against `<eos>`) and say so only in generation_config.json. Trainers cut completions
at `tokenizer.eos_token_id`, so with the wrong one they train on padding after the answer.
"""

from typing import Any

_ANSWER = "x"
_TURNS = [
    {"role": "user", "content": [{"type": "text", "text": _ANSWER}]},
    {"role": "assistant", "content": [{"type": "text", "text": _ANSWER}]},
]


def end_of_turn(processor: Any) -> int | None:
    """The id of the special token that the chat template writes right after an answer; None without one."""
    if processor.chat_template is None:
        return None
    text = processor.apply_chat_template(_TURNS)
    after = text[text.rindex(_ANSWER) + len(_ANSWER) :].lstrip()
    ids = processor.tokenizer(after, add_special_tokens=False)["input_ids"] if after else []
    return ids[0] if ids and ids[0] in processor.tokenizer.added_tokens_decoder else None


def end_turns(processing_class: Any, generation: Any) -> list[int]:
    """Let the token that ends a turn be the eos, if generation stops there; returns where it stops."""
    stops = generation.eos_token_id
    stops = [] if stops is None else [stops] if isinstance(stops, int) else list(stops)
    turn = end_of_turn(processing_class)
    if turn is not None and turn in stops and turn != processing_class.eos_token_id:
        processing_class.set_training_eos(turn)
    return stops
