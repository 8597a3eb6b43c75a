"""Chat templates in the style of each family.

All take a string or a list of `image` and `text` blocks as content, an optional system turn
first, and `add_generation_prompt`. A rendered conversation starts with the rendered prompt of
its last answer.
"""


def _blocks(image: str, video: str = "") -> str:
    """A macro that writes a message's content, with `image` (a Jinja literal) for each image."""
    other = f"{{%- elif block.type == 'video' -%}}{{{{ {video} }}}}" if video else ""
    return (
        "{%- macro blocks(content) -%}"
        "{%- if content is string -%}{{ content }}"
        "{%- else -%}{%- for block in content -%}"
        f"{{%- if block.type == 'image' -%}}{{{{ {image} }}}}{other}"
        "{%- elif block.type == 'text' -%}{{ block.text }}"
        "{%- endif -%}{%- endfor -%}{%- endif -%}"
        "{%- endmacro -%}"
    )


_CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' + blocks(message.content) + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
_DEFAULT_SYSTEM = (
    "{%- if messages[0].role != 'system' -%}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif -%}"
)
_QWEN_BLOCKS = _blocks(
    "'<|vision_start|><|image_pad|><|vision_end|>'", "'<|vision_start|><|video_pad|><|vision_end|>'"
)

INTERNVL = _blocks("'<IMG_CONTEXT>\\n'", "'<video>\\n'") + _CHATML
QWEN2_VL = _QWEN_BLOCKS + _DEFAULT_SYSTEM + _CHATML
QWEN3_VL = _QWEN_BLOCKS + _CHATML
ONEVISION = _blocks("'<image>\\n'", "'<video>\\n'") + _CHATML


def chatml(image: str, video: str = "") -> str:
    """A ChatML template that writes `image` for each image and `video`, if not empty, for videos."""
    return _blocks(_literal(image), _literal(video) if video else "") + _CHATML


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# A leading system turn goes into the first user turn.
_SYSTEM_FIRST = (
    "{%- if messages[0].role == 'system' -%}"
    "{%- set first = blocks(messages[0].content) -%}{%- set turns = messages[1:] -%}"
    "{%- else -%}{%- set first = '' -%}{%- set turns = messages -%}{%- endif -%}"
)

GEMMA3 = (
    _blocks("'<start_of_image>'") + _SYSTEM_FIRST + "{{ bos_token }}{%- for message in turns -%}"
    "{%- set role = 'model' if message.role == 'assistant' else message.role -%}"
    "{{ '<start_of_turn>' + role + '\\n' }}"
    "{%- if loop.first and first -%}{{ first + '\\n\\n' }}{%- endif -%}"
    "{{ blocks(message.content) + '<end_of_turn>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"
)

LLAVA = (
    _blocks("'<image>\\n'") + "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "{{ 'ASSISTANT: ' + blocks(message.content) + eos_token }}"
    "{%- elif message.role == 'system' -%}{{ blocks(message.content) + ' ' }}"
    "{%- else -%}{{ 'USER: ' + blocks(message.content) + ' ' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}"
)

LLAVA_NEXT = (
    _blocks("'<image>\\n'") + _SYSTEM_FIRST + "{%- for message in turns -%}"
    "{%- if message.role == 'assistant' -%}{{ ' ' + blocks(message.content) + eos_token }}"
    "{%- else -%}{{ '[INST] ' }}"
    "{%- if loop.first and first -%}{{ '<<SYS>>\\n' + first + '\\n<</SYS>>\\n\\n' }}{%- endif -%}"
    "{{ blocks(message.content) + ' [/INST]' }}{%- endif -%}"
    "{%- endfor -%}"
)

MISTRAL3 = (
    _blocks("'[IMG]'") + "{{ bos_token }}{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}{{ blocks(message.content) + eos_token }}"
    "{%- elif message.role == 'system' -%}"
    "{{ '[SYSTEM_PROMPT]' + blocks(message.content) + '[/SYSTEM_PROMPT]' }}"
    "{%- else -%}{{ '[INST]' + blocks(message.content) + '[/INST]' }}{%- endif -%}"
    "{%- endfor -%}"
)

# Idefics3 and SmolVLM: the colon is followed by a space unless an image comes first.
IDEFICS = (
    _blocks("'<image>'", "'<video>'") + "{{ bos_token }}{%- for message in messages -%}"
    "{{ message.role | capitalize }}"
    "{%- if message.content is not string and message.content[0].type == 'image' -%}{{ ':' }}"
    "{%- else -%}{{ ': ' }}{%- endif -%}"
    "{{ blocks(message.content) + '<end_of_utterance>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}"
)

# All images, then the turns' text. The processor puts <bos> after the images and a line end after
# the text, so the line end in front of an answer is where the processor ends the bare prompt.
PALIGEMMA = (
    _blocks("''") + "{%- for message in messages -%}{%- if message.content is not string -%}"
    "{%- for block in message.content -%}"
    "{%- if block.type == 'image' -%}{{ '<image>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- for message in messages -%}"
    "{%- if not loop.first -%}{{ '\\n' }}{%- endif -%}"
    "{{ blocks(message.content) }}"
    "{%- if message.role == 'assistant' -%}{{ eos_token }}{%- endif -%}"
    "{%- endfor -%}"
)
