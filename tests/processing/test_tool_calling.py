"""`enable_tools`: calls and what tools say, written and read again, with any chat template."""

import pytest
from transformers import AutoProcessor

from hf_vlm_rl import UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.images import photo

CALL = {"type": "function", "function": {"name": "zoom", "arguments": {"x": 1, "where": "left"}}}
WRITTEN = '<tool_call>\n{"name": "zoom", "arguments": {"x": 1, "where": "left"}}\n</tool_call>'


def zoom(x: int, where: str) -> list:
    """Look closer.

    Args:
        x: How close.
        where: Which side.
    """


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def conversation() -> list[dict]:
    image = {"type": "image", "image": photo("cat", (90, 60))}
    return [
        {"role": "user", "content": [image, text("What is it?")]},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "name": "zoom", "content": [text("left:"), image]},
        {"role": "tool", "name": "zoom", "content": "nothing there"},
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_written_in_order(family, processing_for):
    processing = processing_for(family).enable_tools()
    rendered = processing.apply_chat_template(
        conversation(), tools=[zoom], tokenize=False, add_generation_prompt=True
    )
    placeholder = processing.state.placeholder
    words = ['"Look closer."', "What is it?", "I look.", WRITTEN, WRITTEN, "<tool_response>", "left:"]
    places, start = [], 0
    for word in [*words, "</tool_response>", "<tool_response>", "nothing there", "</tool_response>"]:
        start = rendered.index(word, start) + len(word)
        places.append(start)
    assert rendered.count(placeholder) == 2
    if family != "paligemma":  # its images come first, whatever the turns
        assert rendered.index(placeholder, rendered.index("left:")) < rendered.index("nothing there")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("answer", "content", "calls"),
    [
        (f"I look.\n{WRITTEN}\n{WRITTEN}", "I look.", [CALL, CALL]),
        (WRITTEN, None, [CALL]),
        ("A cat.", "A cat.", None),
    ],
)
def test_answers_are_read_again(family, answer, content, calls, processing_for):
    processing = processing_for(family).enable_tools()
    prompt = processing.apply_chat_template(
        [conversation()], tools=[zoom], tokenize=True, return_dict=True, add_generation_prompt=True
    )["input_ids"][0]
    ids = [*processing.tokenizer(answer, add_special_tokens=False)["input_ids"], processing.eos_token_id]
    message = processing.tokenizer.parse_response(ids, prefix=prompt, tools=[zoom])
    assert message["role"] == "assistant"
    assert (message.get("content") or None) == content
    assert message.get("tool_calls") == calls


@pytest.mark.parametrize("family", ["internvl", "gemma3", "llava"])
def test_turns_without_tools_are_written_as_before(family, processing_for):
    plain, taught = processing_for(family), processing_for(family).enable_tools()
    messages = [
        {"role": "system", "content": "Be brief."},
        *conversation()[:1],
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ]
    for turns in (messages, messages[1:], messages[1:2]):
        calls = [each.apply_chat_template(turns, tokenize=False) for each in (plain, taught)]
        assert calls[0] == calls[1]


def test_what_serves_the_model_gets_both(processing_for, tmp_path):
    processing = processing_for("internvl").enable_tools()
    processing.save_pretrained(tmp_path)
    saved = AutoProcessor.from_pretrained(tmp_path)
    assert saved.chat_template == processing.chat_template
    assert saved.tokenizer.response_template == processing.tokenizer.response_template


def test_a_template_that_writes_tools_is_left_alone(processing_for):
    processing = processing_for("internvl").enable_tools()
    once = processing.chat_template
    assert processing.enable_tools().chat_template == once


@pytest.mark.parametrize("template", ["{{ messages[0].content[0].text }}", "{{ raise_exception('no') }}"])
def test_a_template_that_drops_turns_is_refused(template, processing_for):
    processing = processing_for("internvl")
    processing.chat_template = template
    with pytest.raises(UnsupportedModelError, match="does not write what turns"):
        processing.enable_tools()
    assert processing.chat_template == template


def test_without_a_template_there_are_no_turns(processing_for):
    processing = processing_for("internvl")
    processing.chat_template = None
    with pytest.raises(UnsupportedModelError, match="has no chat template"):
        processing.enable_tools()
