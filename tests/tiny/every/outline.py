"""What the general rules cannot know of one class: a line or two for each in the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Id:
    """Stands in a table for the id of `word` in the tokenizer that is made later."""

    word: str


@dataclass(frozen=True)
class VocabularySize:
    """Stands in a table for the number of rows of the embedding, plus `more`."""

    more: int = 0


@dataclass(frozen=True)
class Outline:
    """How a class differs from what its processor's signature and its default config say.

    `words` maps a role to a special word. The word becomes the tokenizer's `<role>_token`, and its
    id the config's `<role>_token_id`, `<role>_token_index` or `<role>_id`.
    """

    words: Mapping[str, str]
    # More special words, which no config field names.
    more_words: tuple[str, ...] = ()
    # What the chat template writes for an image; None: the word of the role `image`.
    image: str | None = None
    # What it writes for a video; None: the word of the role `video`, if there is one.
    video: str | None = None
    # Names of transformers' classes where the Auto mappings have none or another.
    processor: str = ""
    image_processor: str = ""
    video_processor: str = ""
    feature_extractor: str = ""
    # Keyword arguments of these.
    options: Mapping[str, Any] = field(default_factory=dict)
    image_options: Mapping[str, Any] = field(default_factory=dict)
    video_options: Mapping[str, Any] = field(default_factory=dict)
    # Fields of the config set after it was made small, nested like the config.
    config: Mapping[str, Any] = field(default_factory=dict)
    # Whether the stock class reads back what it saves in the layout of the original checkpoint.
    original_format: bool = True
    # Whether the model sees only the first image of a row.
    one_image: bool = False
    # Why no policy can be made of it, if none can.
    no_policy: str = ""
