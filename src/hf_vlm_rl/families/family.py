"""`VLMFamily`: everything the library knows about one kind of model, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from .box_format import BoxFormat

PATHS = ("vision", "projector", "other", "token_types", "companions", "video_companions")
# What a field holds until it is derived; its type is that of what is derived.
TO_DERIVE: Any = None


@dataclass(frozen=True)
class VLMFamily:
    """What is known of the models of one `config.model_type`.

    A field that is None is derived from the model and its native processor when a checkpoint is loaded
    (`derive_parts`, `derive_inputs`); `policy.family` has no None. A value that is written wins.

    Module paths are relative to the `...ForConditionalGeneration` model.

    Attributes:
        model_type: `config.model_type`, verbatim.
        vision: Modules that turn pixels into vision features.
        projector: Modules between the vision tower and the decoder.
        language: The text decoder, without embeddings of other modalities and without the head.
        other: Modules of other modalities (audio towers, image generators), which no image reaches.
        token_types: Names of the backbone's inputs that say of each token what kind it is; the native
            processor's `create_*` makes them of the ids.
        companions: Names of the image processor's outputs that the backbone takes beside the features
            (grids, sizes).
        grids: The backbone makes positions in several dimensions (mRoPE) of the images' companions.
        prefix_attention: Prompt tokens attend to each other in both directions, completion tokens
            causally. Tickets then also carry where the prompt ends.
        alone_differs: An image is processed differently when it is the only one of its row.
        needs_image: The native processor refuses rows without an image.
        native_inputs: The stock forward runs on exactly the tensors that the native processor makes for a
            batch: nothing is encoded once or shared. For models that take no image features, or whose
            features of an image depend on the other images of the batch.
        batches_images: One call of the vision tower encodes several images whose tensors agree in every
            dimension but the first.
        video_features: Name of the backbone's method that makes features of videos: `get_image_features`
            where the model sees the frames as images; "" where it takes no videos.
        video_companions: As `companions`, of videos: grids, seconds between frames, which features are kept.
        processor_options: `from_pretrained` option to the image processor's own name for it.
        least_tokens: Fewest tokens of an image that the stock backbone can encode.
        counts_by_size: An image's width and height alone decide how many tokens it has, so that
            `prompt_lengths` need not decode it.
        equal_ranks: Some of its modules run only where a batch has images, beside tower and projector: where
            weights are spread over ranks, all ranks need as many images.
        boxes: How its models write boxes, if their makers say so; see `BoxCoordinates`.

    Raises:
        TypeError: If a field that holds several names is one string.
    """

    model_type: str
    vision: tuple[str, ...] = TO_DERIVE
    projector: tuple[str, ...] = TO_DERIVE
    language: str = TO_DERIVE
    other: tuple[str, ...] = TO_DERIVE
    token_types: tuple[str, ...] = TO_DERIVE
    companions: tuple[str, ...] = TO_DERIVE
    grids: bool = TO_DERIVE
    prefix_attention: bool = TO_DERIVE
    alone_differs: bool = TO_DERIVE
    needs_image: bool = TO_DERIVE
    native_inputs: bool = TO_DERIVE
    batches_images: bool = TO_DERIVE
    video_features: str = TO_DERIVE
    video_companions: tuple[str, ...] = TO_DERIVE
    processor_options: Mapping[str, str] = TO_DERIVE
    least_tokens: int = 1
    counts_by_size: bool = False
    equal_ranks: bool = False
    boxes: BoxFormat | None = None

    def __post_init__(self) -> None:
        for name in PATHS:
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"Got {name}={value!r}. Expected a tuple: {name}=({value!r},).")

    @property
    def missing(self) -> frozenset[str]:
        """Names of the fields that are to be derived."""
        # Boxes need no deriving: None says that the makers document none.
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) is None) - {
            "boxes"
        }

    def completed(self, derived: Mapping[str, Any]) -> Self:
        """A copy in which `derived` values stand where nothing is written."""
        return replace(self, **{name: derived[name] for name in self.missing & derived.keys()})
