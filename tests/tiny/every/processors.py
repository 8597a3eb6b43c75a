"""The native processor of a class, made from the signature of its own constructor."""

import inspect
from typing import Any

import transformers
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

from hf_vlm_rl.families.tiny import templates
from hf_vlm_rl.families.tiny.tokens import byte_tokenizer
from tests.tiny.every.parts import CHATML

from .outline import Outline


def tiny_tokenizer(outline: Outline) -> PreTrainedTokenizerBase:
    """A byte-level tokenizer with ChatML's words and those of `outline`."""
    special = dict.fromkeys((*CHATML, *outline.words.values(), *outline.more_words))
    named = {f"{role}_token": word for role, word in outline.words.items() if role != "bos"}
    return byte_tokenizer(
        tuple(special),
        named,
        bos_token=outline.words.get("bos"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )


def tiny_processor(model_type: str, outline: Outline, tokenizer: PreTrainedTokenizerBase) -> ProcessorMixin:
    """The processor of `model_type`, with a ChatML template."""
    processor_class = getattr(transformers, outline.processor or PROCESSOR_MAPPING_NAMES[model_type])
    image_class = outline.image_processor or _mapped(IMAGE_PROCESSOR_MAPPING_NAMES, model_type)
    video_class = outline.video_processor or _mapped(VIDEO_PROCESSOR_MAPPING_NAMES, model_type)
    audio_class = outline.feature_extractor or _mapped(FEATURE_EXTRACTOR_MAPPING_NAMES, model_type)
    parts = {
        "tokenizer": tokenizer,
        "image_processor": _part(image_class, outline.image_options),
        "video_processor": _part(video_class, _sizes(outline.image_options) | dict(outline.video_options)),
        "feature_extractor": _part(audio_class, {}),
        "audio_processor": _part(audio_class, {}),
    }
    expected = inspect.signature(processor_class.__init__).parameters
    processor = processor_class(
        **{name: part for name, part in parts.items() if name in expected and part is not None},
        **outline.options,
    )
    processor.chat_template = templates.chatml(
        outline.words["image"] if outline.image is None else outline.image,
        outline.words.get("video", "") if outline.video is None else outline.video,
    )
    return processor


def _mapped(names: Any, model_type: str) -> str | None:
    """The class that the Auto mapping `names` gives, its torchvision variant if it has one."""
    name = names.get(model_type)
    return name.get("torchvision") or name.get("pil") if isinstance(name, dict) else name


def _sizes(image_options: Any) -> dict[str, Any]:
    """Frames are as small as images; where pixels are counted, those of eight frames."""
    sizes = {name: image_options[name] for name in ("size", "crop_size") if name in image_options}
    if sizes.get("size", {}).keys() == {"shortest_edge", "longest_edge"}:
        sizes["size"] = {edge: 8 * area for edge, area in sizes["size"].items()}
    return sizes


def _part(class_name: str | None, options: Any) -> Any:
    return getattr(transformers, class_name)(**options) if class_name else None
