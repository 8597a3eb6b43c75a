"""`VLMFamily`: everything the library knows about one kind of model, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .box_format import BoxFormat


@dataclass(frozen=True)
class VLMFamily:
    """One row per `config.model_type`.

    Module paths are relative to the `...ForConditionalGeneration` model.

    Attributes:
        model_type: `config.model_type`, verbatim.
        vision: Module that turns pixels into vision features.
        projector: Modules between the vision tower and the decoder.
        language: The text decoder, without embeddings of other modalities and without the head.
        token_types: Name of the per-token input that marks image tokens with 1, if the backbone
            takes one.
        grids: The backbone takes `image_grid_thw` and computes 3-D positions (mRoPE) from it.
        prefix_attention: Prompt tokens attend to each other in both directions, completion tokens
            causally. Tickets then also carry where the prompt ends.
        alone_differs: An image is processed differently when it is the only one of its row.
        least_tokens: Fewest tokens of an image that the stock backbone can encode.
        needs_image: The native processor refuses rows without an image.
        counts_by_size: An image's width and height alone decide how many tokens it has, so that
            `prompt_lengths` need not decode it.
        processor_options: `from_pretrained` option to the image processor's own name for it.
        boxes: How its models write boxes, if their makers say so; see `BoxCoordinates`.
        note: One sentence for the support matrix.
    """

    model_type: str
    vision: str = "model.vision_tower"
    projector: tuple[str, ...] = ("model.multi_modal_projector",)
    language: str = "model.language_model"
    token_types: Literal["mm_token_type_ids", "token_type_ids"] | None = None
    grids: bool = False
    prefix_attention: bool = False
    alone_differs: bool = False
    least_tokens: int = 1
    needs_image: bool = False
    counts_by_size: bool = False
    processor_options: Mapping[str, str] = field(default_factory=dict)
    boxes: BoxFormat | None = None
    note: str = ""
