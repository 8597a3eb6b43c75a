"""What a family's checkpoint is made of, and the parts the families share."""

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin

# Words of the ChatML families; the end of a turn is also the end of an answer.
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Recipe:
    """A configuration, its native processor, and the ids that end an answer, eos first."""

    config: PreTrainedConfig
    processor: ProcessorMixin
    stop_ids: tuple[int, ...]
    # Whether to save in the layout of the original checkpoint, as `save_pretrained` does by default.
    original_format: bool = True
    # Whether the model sees only the first image of a row.
    one_image: bool = False


def ids(tokenizer: PreTrainedTokenizerBase, *words: str) -> tuple[int, ...]:
    """Ids of words that must be in the vocabulary as they are."""
    vocab = tokenizer.get_vocab()
    return tuple(vocab[word] for word in words)


def text_config(tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> dict[str, Any]:
    """A two-layer decoder with grouped-query attention, its vocabulary a multiple of eight."""
    return {
        "vocab_size": -(-len(tokenizer) // 8) * 8,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **kwargs,
    }


def vision_config(image_size: int, patch_size: int = 14, **kwargs: Any) -> dict[str, Any]:
    """A two-layer vision tower for square images."""
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": image_size,
        "patch_size": patch_size,
        **kwargs,
    }


def square(side: int) -> dict[str, int]:
    """The size of a square image, as image processors write it."""
    return {"height": side, "width": side}
