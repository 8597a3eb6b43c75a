"""What trainers ask of a tokenizer, answered by the tokenizer inside a processor."""

from typing import TYPE_CHECKING, Any

from transformers import ProcessorMixin

from .ids.tokenizer import WRONG_KIND, IdsTokenizer, make_ids_tokenizer
from .state import ProcessingState

if TYPE_CHECKING:  # the class that it is mixed into
    _StockProcessor = ProcessorMixin
else:
    _StockProcessor = object


def _from_tokenizer(name: str) -> property:
    return property(
        lambda self: getattr(self.tokenizer, name),
        lambda self, value: setattr(self.tokenizer, name, value),
        doc=f"`tokenizer.{name}`.",
    )


class TokenizerShape(_StockProcessor):
    """Mixed into a processor: the attributes of its tokenizer under the same names."""

    tokenizer: Any
    state: ProcessingState

    all_special_ids = _from_tokenizer("all_special_ids")
    all_special_tokens = _from_tokenizer("all_special_tokens")
    bos_token = _from_tokenizer("bos_token")
    bos_token_id = _from_tokenizer("bos_token_id")
    convert_ids_to_tokens = _from_tokenizer("convert_ids_to_tokens")
    convert_tokens_to_ids = _from_tokenizer("convert_tokens_to_ids")
    convert_tokens_to_string = _from_tokenizer("convert_tokens_to_string")
    encode = _from_tokenizer("encode")
    eos_token = _from_tokenizer("eos_token")
    eos_token_id = _from_tokenizer("eos_token_id")
    get_added_vocab = _from_tokenizer("get_added_vocab")
    get_vocab = _from_tokenizer("get_vocab")
    init_kwargs = _from_tokenizer("init_kwargs")
    is_fast = _from_tokenizer("is_fast")
    model_max_length = _from_tokenizer("model_max_length")
    name_or_path = _from_tokenizer("name_or_path")
    pad_token = _from_tokenizer("pad_token")
    pad_token_id = _from_tokenizer("pad_token_id")
    padding_side = _from_tokenizer("padding_side")
    special_tokens_map = _from_tokenizer("special_tokens_map")
    tokenize = _from_tokenizer("tokenize")
    truncation_side = _from_tokenizer("truncation_side")
    unk_token = _from_tokenizer("unk_token")
    unk_token_id = _from_tokenizer("unk_token_id")
    vocab_size = _from_tokenizer("vocab_size")

    def as_tokenizer(self) -> IdsTokenizer:
        """A tokenizer for trainers that know only texts and ids, made once; see `ids.tokenizer`.

        Raises:
            UnsupportedModelError: If the model's prompts attend in both directions (PaliGemma).
        """
        if self.state.ids_tokenizer is None:
            self.state.ids_tokenizer = make_ids_tokenizer(self)
        return self.state.ids_tokenizer

    def set_training_eos(self, token_id: int) -> None:
        """Use another `eos_token` from now on; saved files keep the native one.

        Args:
            token_id: The token with which the chat template ends a turn.
        """
        self.state.native_eos = self.state.native_eos or self.eos_token
        self.eos_token = self.convert_ids_to_tokens(token_id)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """The native `save_pretrained`; what it writes is the native processor."""
        training_eos = self.eos_token
        try:
            self.eos_token = self.state.native_eos or training_eos
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            self.eos_token = training_eos

    @property
    def backend_tokenizer(self) -> Any:
        """A processor has none; trainers that ask for one take `as_tokenizer`.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"{type(self).__name__} has no backend_tokenizer. {WRONG_KIND}")

    def __len__(self) -> int:
        """Number of tokens, added ones included."""
        return len(self.tokenizer)
