"""From a native processor to the processing class of a family."""

from typing import Any

import jinja2
import torch
from transformers import PreTrainedConfig, ProcessorMixin

from .._retype import retype
from ..errors import UnsupportedModelError
from ..families import VLMFamily
from ..families.derive_inputs import VIDEO_FEATURES, image_token_id, prompt, token_types
from .images.store import ImageStore, default_store
from .native_call import images_kwargs_asked
from .state import ProcessingState
from .tokenizer import VLMTokenizer


def make_processing_class(
    processor: Any, config: PreTrainedConfig, family: VLMFamily, image_store: ImageStore | None = None
) -> VLMTokenizer:
    """Re-type a native processor in place, so that it emits tickets and serves as a tokenizer.

    It has passed `check_native` and `adopt_template`, and `family` was derived from it. One that is re-typed
    already comes back as is. Without `image_store`, it gets the process-wide store.

    Raises:
        UnsupportedModelError: If its prompts do not say where an image is, or it writes ids by rules of its
            own that depend on a row's other images.
    """
    if isinstance(processor, VLMTokenizer):
        return processor
    tokenizer, image_token = processor.tokenizer, image_token_id(config, processor)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # Processors and configs of models without videos lack these.
    video_token = getattr(processor, "video_token", None)
    written = _written_placeholder(processor)
    feature_token = tokenizer.convert_ids_to_tokens(image_token)
    texts = dict.fromkeys((written, processor.image_token, feature_token, video_token))
    sampled_never = {
        image_token,
        getattr(config, "video_token_id", None),
        None if video_token is None else tokenizer.get_vocab().get(video_token),
        *_of_images(processor, family, len(tokenizer)),
    }
    one_image = prompt(processor, 1)
    with torch.device("cpu"):  # processors compute, also while a caller builds a model on "meta"
        whole = family.native_inputs or images_kwargs_asked(processor, one_image) is None
    if whole and family.alone_differs and not family.native_inputs:
        raise UnsupportedModelError(
            f"{type(processor).__name__} writes ids by its own rules, and processes an image otherwise when "
            "it is the only one of its row. Expected one of both at most; pass native_inputs=True."
        )
    no_videos = _no_videos(processor, family, whole)
    video_id = None
    if family.video_features == VIDEO_FEATURES:
        # As for images: the id in the model's config goes before the processor's name for the token.
        written_id = getattr(config, "video_token_id", None)
        video_id = tokenizer.get_vocab().get(video_token) if written_id is None else written_id
    processing = retype(processor, VLMTokenizer)
    processing.state = ProcessingState(
        family=family,
        store=default_store() if image_store is None else image_store,  # an empty store is falsy
        placeholder_id=image_token,
        placeholder_texts=tuple(text for text in texts if text),
        ordinary_ids=_ordinary_ids(tokenizer, config),
        never_sampled=tuple(sorted(token for token in sampled_never if token is not None)),
        placeholder=written,
        one_image=one_image,
        whole=whole,
        # Some models have one id for images and videos.
        video_id=None if no_videos or video_id == image_token else video_id,
        video_placeholder=video_token,
        no_videos=no_videos,
    )
    return processing


def _of_images(processor: Any, family: VLMFamily, vocabulary: int) -> set[int]:
    """Ids that the processor's token types take for parts of images or videos, as those of its marks.

    Molmo 2 would let such a token see its neighbours in both directions, and ERNIE 4.5 VL give it to the
    experts of images, in a forward on the answer and not while it is sampled.
    """
    ids = torch.arange(vocabulary, device="cpu")[None]  # also while a caller builds a model on "meta"
    names = () if family.prefix_attention else family.token_types  # those tell prompts from answers
    kinds = [token_types(processor, name, ids) for name in names]
    return {token for each in kinds for token in ids[(each == 1) | (each == 2)].tolist()}


def _no_videos(processor: Any, family: VLMFamily, whole: bool) -> str:
    """Why a model takes no videos; "" if it does."""
    expected = (
        "Expected images: pass the video's frames, or use a model that takes videos (docs/families.md)."
    )
    if family.native_inputs:
        return (
            f"{family.model_type} runs on its native processor's tensors, and these carry images. {expected}"
        )
    if not family.video_features:
        return f"The stock model of {family.model_type} takes none, or its processor makes none. {expected}"
    if whole:
        return f"{type(processor).__name__} writes ids by its own rules. {expected}"
    return ""


def _written_placeholder(processor: Any) -> str:
    """The string that the chat template writes for one image.

    Raises:
        UnsupportedModelError: If the chat template writes none of the processor's image tokens.
    """
    # A few processors write one token into the text and replace it by the one that the model reads.
    tokens = [getattr(processor, "image_placeholder_token", None), processor.image_token]
    one, two = prompt(processor, 1), prompt(processor, 2)
    for token in filter(None, tokens):
        if one.count(token) == 1 and two.count(token) == 2:
            return token
    raise UnsupportedModelError(
        f"The chat template writes {one!r} for a message with one image. Expected {processor.image_token!r} "
        "in it, once for each image; set processor.chat_template to the template of the checkpoint's makers."
    )


def adopt_template(processor: Any) -> None:
    """Give a processor without a chat template that of its tokenizer, if that one writes images.

    Some processors leave the template of their checkpoint to the tokenizer.
    """
    if processor.chat_template is not None or processor.tokenizer.chat_template is None:
        return
    processor.chat_template = processor.tokenizer.chat_template
    try:
        _written_placeholder(processor)
    except (UnsupportedModelError, jinja2.TemplateError, TypeError):
        processor.chat_template = None


def check_native(processor: Any, model_type: str) -> None:
    """Refuse what is no multimodal processor.

    Raises:
        UnsupportedModelError: If it has no image token that a text can hold: a tokenizer, an image processor
            alone, or one that places images by itself.
    """
    image_token = getattr(processor, "image_token", None)
    if not isinstance(processor, ProcessorMixin) or image_token is None:
        raise UnsupportedModelError(
            f"Got a {type(processor).__name__} for a {model_type} model. Expected its "
            "processor, with a tokenizer, an image processor and an image token; check that the "
            "checkpoint has processor_config.json or preprocessor_config.json."
        )
    if not isinstance(image_token, str):
        raise UnsupportedModelError(
            f"{type(processor).__name__} puts images in front of the text by itself, so that no prompt of a "
            f"{model_type} model says where an image is. Expected a processor whose image_token stands in "
            "the text, once for each image."
        )


def _ordinary_ids(tokenizer: Any, config: PreTrainedConfig) -> list[int]:
    reserved = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    rows = config.get_text_config().vocab_size
    return [index for index in tokenizer.get_vocab().values() if index < rows and index not in reserved]
