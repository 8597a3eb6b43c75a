"""SmolLM2-135M-Instruct from the GGUF file of a package: decoder, and tokenizer with InternVL's marks."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from .packages import LANGUAGE

# The names InternVL's processor looks up on its tokenizer. Only the constructor saves them.
IMAGE_SPECIALS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
# SmolLM2's own format, without the system prompt that its template adds.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif part['type'] == 'video' %}{{ '<video>\n' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer (49,152 entries, and the four marks).

    Args:
        folder: The unpacked package.
    """
    path = folder / LANGUAGE.wanted[0]
    stock = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return PreTrainedTokenizerFast(
        tokenizer_object=stock.backend_tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        extra_special_tokens=IMAGE_SPECIALS,
        chat_template=CHAT_TEMPLATE,
    )


def load_decoder(folder: Path, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The decoder in float32, with a row of embeddings for each of the tokenizer's entries.

    Args:
        folder: The unpacked package.
        tokenizer: From `load_tokenizer`.
    """
    path = folder / LANGUAGE.wanted[0]
    decoder = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    decoder.resize_token_embeddings(len(tokenizer))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(decoder.config, name, getattr(tokenizer, name))
    return decoder
