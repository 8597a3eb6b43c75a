"""The policy type: the stock transformers model, re-typed in place, that understands tickets.

`VLMPolicy` is mixed into the `...ForConditionalGeneration` object and `VLMBackbone` into its
multimodal backbone. Neither adds a module, a parameter or a config entry: state-dict keys,
`architectures` and saved files are those of the bare model, and with no image and no ticket it
computes exactly what the bare model computes.
"""

import functools
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationMixin, LogitsProcessorList, PreTrainedModel

from .._retype import Retyped, overriding, retype
from ..errors import TicketError
from ..families import VLMFamily
from ..processing.encoded_rows import check_prompts
from ..processing.ids_tokenizer import IdsTokenizer
from ..processing.tokenizer import VLMTokenizer
from .backbone import VLMBackbone, make_backbone
from .chat import chat
from .image_tokens import IGNORED, NEVER, labels_answered, make_certain, read_images, unlabelled
from .inputs import generating, inside_generate, model_inputs
from .kept_logits import kept_by_place, takes_places
from .locate import cached_tokens, has_pixels, locate, tickets_inside
from .lora import lora_config
from .native import read_native
from .parts import freeze
from .ranks import is_sharded
from .rollouts.drafts import prompt_keys, prompts_known
from .rollouts.finished import keeping_rows, running_batch, sample
from .rollouts.processors import NeverSample
from .sharing.kernel import PackedAttention, Setting
from .sharing.prefill import prefill_once
from .sharing.switch import Mode, forbidden
from .spare_types import without_spare_types

PREDICTED_FROM_PADDING = "a label is predicted from padding: the first token of a left-padded row has one"


if TYPE_CHECKING:
    from peft import LoraConfig

    class _StockModel(PreTrainedModel, GenerationMixin):
        """What the policy finds in the class that it is mixed into."""

        @property
        def base_model(self) -> VLMBackbone: ...

else:
    _StockModel = object


class VLMPolicy(Retyped, _StockModel):
    """Mixed into the causal-LM model; see the module docstring."""

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        own_generate = stock.generate is not GenerationMixin.generate
        by_place = takes_places(stock.forward)

        @overriding(stock.generate)
        def generate(self: Any, kwargs: dict[str, Any]) -> Any:
            return self._generate_with_images(functools.partial(stock.generate, self), kwargs)

        @overriding(stock._sample)
        def _sample(self: Any, kwargs: dict[str, Any]) -> Any:
            return sample(self, functools.partial(stock._sample, self), kwargs)

        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            batch = running_batch(self, kwargs)
            if batch is None:
                return compute(self, kwargs)
            return batch.forward(functools.partial(compute, self), kwargs)

        def compute(self: Any, kwargs: dict[str, Any]) -> Any:
            kwargs = without_spare_types(self.base_model, kwargs)
            # Asked first: the backbone may change the arguments.
            ids: Any = kwargs.get("input_ids")
            places, never = None, own_generate and generating()
            prompts = False
            inside = tickets_inside(self.base_model, kwargs)
            # Rows of text alone get the stock model's very numbers.
            if by_place and (inside or has_pixels(kwargs)):
                kwargs |= kept_by_place(kwargs)
            if inside:
                places, prompts = read_images(self.base_model, ids)
                # Whoever samples without `generate` does it in inference mode.
                never = never or prompts or torch.is_inference_mode_enabled()
                if kwargs.get("labels") is not None:
                    kwargs["labels"] = unlabelled(kwargs["labels"], ids, places)
            padded = PREDICTED_FROM_PADDING if _padding_predicts(kwargs) else None
            # Steps of `generate` set nothing for this thread: that would break torch's graph of a step.
            with (
                forbidden(padded) if padded else nullcontext(),
                labels_answered() if inside else nullcontext(),
            ):
                output = stock.forward(self, **kwargs)
            # A class's own `generate` may pass no processors on (Janus, transformers 5.23).
            if never:
                self._without_placeholders(_logits(output))
            if places is not None and not prompts:
                make_certain(_logits(output), ids, places)
            return output

        return {"generate": generate, "forward": forward, "_sample": _sample}

    @property
    def processing_class(self) -> VLMTokenizer:
        """The processing class for trainers: the native processor, tokenizer-shaped."""
        # Not through the attribute: a model without a backbone of its own is its own `base_model`.
        of_backbone: Any = VLMBackbone.processing_class
        return of_backbone.fget(self.base_model)

    @property
    def tokenizer(self) -> IdsTokenizer:
        """The processing class for trainers that know only texts and ids; see `IdsTokenizer`."""
        return self.processing_class.as_tokenizer()

    @property
    def family(self) -> VLMFamily:
        """What is known of this kind of model, written or derived."""
        return self.processing_class.state.family

    @property
    def placeholder_ids(self) -> tuple[int, ...]:
        """Ids of image and video placeholders, which `generate` never samples."""
        return self.processing_class.state.never_sampled

    def sharing_report(self) -> dict[str, Any]:
        """What was computed once so far, and why not more.

        Returns:
            `images_encoded` and `images_reused`: images that went through the vision tower, and that
            did not have to. `tokens` and `tokens_computed`: of the forwards that shared prefixes, the
            batch's tokens and those the decoder ran on; `levels`: the most prefixes behind each other that
            one of their rows shared, 1 for prompts and completions, more for conversations that part at
            different turns ("cached" always has 1).
            `prompts` and `prompts_prefilled`: of the `generate` calls with prompts that repeat or begin
            alike, the prompts and the distinct ones; `prompt_tokens` and `prompt_tokens_prefilled`: their
            tokens and those the decoder ran on.
            `not_shared`: reason to number of forwards. `way`: how
            rows share in training, "packed" (one row for all), "mixed" (the same, but recurrent modules run
            on prompts and then on what follows), "cached" (prompts fill a cache that all rows continue:
            slower, for decoders that do not run on a packed row), or None.
            `packed_attention`: kernel ("flex", "loop") to number of calls for packed rows, one for each layer
            of a forward. `not_flex`: why FlexAttention did not compute a call where it is asked to (see
            `set_packed_attention`), to number of calls.
            `tokens_by_batch_size`: of the latest optimiser step, rows of a forward to the tokens that the
            decoder computes in the whole step: first as it ran, then with larger forwards, of which there
            are fewer (`per_device_train_batch_size` times more, `gradient_accumulation_steps` fewer).
            `row_steps` and `row_steps_run`: of the `generate` calls that finished rows may leave, rows times
            steps of decoding, and those that the model ran. `rows_kept`: reason to number of `generate`
            calls that they may not leave.
            `drafts` and `drafts_accepted`: with `speculation`, tokens that were run before they were
            sampled, and those of them that were sampled then; `forwards_saved`: steps of decoding less
            forwards; `not_speculated`: reason to number of `generate` calls that went on token by token.
            `native_inputs`: `VLMFamily.native_inputs`; if True, no prompt is ever shared.
        """
        features, sharing = self.base_model.feature_cache, self.base_model.sharing
        rollouts = self.base_model.rollouts
        return {
            "images_encoded": features.encoded,
            "images_reused": features.reused,
            "tokens": sharing.tokens,
            "tokens_computed": sharing.computed,
            "levels": sharing.levels,
            "prompts": sharing.prompts,
            "prompts_prefilled": sharing.prefilled,
            "prompt_tokens": sharing.prompt_tokens,
            "prompt_tokens_prefilled": sharing.prompt_tokens_prefilled,
            "not_shared": dict(sharing.refused),
            "way": sharing.way_in_words,
            "packed_attention": dict(sharing.attention.calls),
            "not_flex": dict(sharing.attention.refused),
            "tokens_by_batch_size": sharing.tokens_by_rows(),
            "row_steps": rollouts.steps,
            "row_steps_run": rollouts.steps_run,
            "rows_kept": dict(rollouts.kept),
            "drafts": rollouts.drafts,
            "drafts_accepted": rollouts.drafts_accepted,
            "forwards_saved": rollouts.forwards_saved,
            "not_speculated": dict(rollouts.not_speculated),
            "native_inputs": self.family.native_inputs,
        }

    def set_packed_attention(self, setting: Setting) -> "VLMPolicy":
        """Choose what computes the attention of rows that share their prompts in one packed row.

        Args:
            setting: "auto", the default: FlexAttention on CUDA, the loop elsewhere. "flex": FlexAttention,
                also on a CPU (slow, and without gradients). "loop": stock's own attention, with some calls
                for each prompt. What FlexAttention cannot compute, the loop does; `sharing_report` says why.

        Returns:
            The policy.

        Raises:
            ValueError: If there is no such setting.
        """
        self.base_model.sharing.attention = PackedAttention(setting)
        return self

    def lora_config(
        self, r: int = 16, target: Any = "language", experts: bool | None = None, **peft_kwargs: Any
    ) -> "LoraConfig":
        """A `peft.LoraConfig` for this model; see `lora.lora_config`."""
        return lora_config(self, r, target, experts, **peft_kwargs)

    def freeze(self, vision: bool = True, projector: bool = True, language: bool = False) -> "VLMPolicy":
        """Stop gradients to the chosen parts; the others stay as they are. See `parts.freeze`.

        Returns:
            The policy.
        """
        freeze(self, vision, projector, language)
        return self

    def chat(self, messages: Any, images: Any = None, **generation_kwargs: Any) -> str | list[str]:
        """Answer one conversation or a list of them; see `chat.chat`."""
        return chat(self, messages, images, **generation_kwargs)

    def generate_batch(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Continuous batching of transformers, for prompts without images.

        Raises:
            TicketError: If a prompt has images.
        """
        for row, ids in enumerate(inputs):
            if self.processing_class.state.placeholder_id in ids:
                raise TicketError(
                    f"Row {row} has images, and transformers' continuous batching takes ids alone. Expected "
                    "use_transformers_continuous_batching=False: generate shares prompts and lets finished "
                    "rows leave the batch."
                )
        return super().generate_batch(inputs, *args, **kwargs)

    def _without_placeholders(self, logits: torch.Tensor) -> None:
        """Make the logits (B, L, V) of placeholders so low that they have no probability, in place.

        Id-only trainers compare log-probs from a forward with those of the scores in `generate`,
        which never samples placeholders; this makes both the same distribution. A batch in which no
        row has a ticket cannot be told from plain text and is left as it is.
        """
        for token in self.placeholder_ids:
            if token < logits.shape[-1]:
                logits[..., token] = NEVER  # in place: it is the largest tensor of a step

    @torch.no_grad()
    def _generate_with_images(self, generate: Any, kwargs: dict[str, Any]) -> Any:
        inputs = kwargs.pop("inputs", None)
        if inputs is not None:
            kwargs["input_ids"] = inputs
        kwargs = without_spare_types(self.base_model, kwargs)
        prompt: Any = kwargs.get("input_ids")
        cached = cached_tokens(kwargs)
        inside = tickets_inside(self.base_model, kwargs)
        kwargs, rows = locate(self.base_model, kwargs, cached)
        if rows is None and not cached and not self.family.native_inputs:
            kwargs, rows = read_native(self.base_model, kwargs)
        if inside:
            assert rows is not None  # tickets in the ids give each row its images
            mask, tails = kwargs.get("attention_mask"), [row.tail for row in rows]
            check_prompts(self.processing_class, kwargs["input_ids"], mask, tails)
        restored: Any = kwargs.get("input_ids")
        processors = kwargs.pop("logits_processor", None) or []
        kwargs["logits_processor"] = LogitsProcessorList([*processors, NeverSample(self.placeholder_ids)])
        # The caller goes on with a cache of his own.
        passed = "past_key_values is given" if kwargs.get("past_key_values") is not None else None
        drafting = self.base_model.rollouts.speculation
        keys = prompt_keys(self.base_model, kwargs, rows) if drafting else None
        with inside_generate(), keeping_rows(passed), prompts_known(keys):
            if rows is not None:
                sharded = is_sharded(self.base_model)
                prefilled = prefill_once(self, kwargs, rows, sharded)
                kwargs = prefilled or kwargs | model_inputs(
                    self.base_model, restored[:, cached:], rows, kwargs, sharded
                )
            output = generate(**kwargs)
        if restored is not None and restored is not prompt:
            # Callers compare or re-use the prompt that they passed: give it back with its tickets.
            sequences = output if isinstance(output, torch.Tensor) else output.sequences
            copies = len(sequences) // len(prompt)
            sequences[:, : prompt.shape[1]] = prompt.repeat_interleave(copies, dim=0)
        return output


def _logits(output: Any) -> torch.Tensor:
    """The logits of a forward's output, which may be a tuple."""
    parts = output if isinstance(output, tuple) else (output.logits,)
    return next(part for part in parts if isinstance(part, torch.Tensor) and part.ndim == 3)


def _padding_predicts(kwargs: Mapping[str, Any]) -> bool:
    """Whether the loss of a forward holds a token that is predicted from a position of padding."""
    labels, mask = kwargs.get("labels"), kwargs.get("attention_mask")
    if labels is None or mask is None or mask.ndim != 2 or mask.shape != labels.shape:
        return False
    return bool(((labels[:, 1:] != IGNORED) & (mask[:, :-1] == 0)).any())


def make_policy(
    model: Any, processing_class: VLMTokenizer, sharing: Mode = "auto", speculation: bool | int = False
) -> VLMPolicy:
    """Re-type `model`, its backbone and its decoder in place.

    Args:
        model: A stock `...ForConditionalGeneration` model.
        processing_class: From `processing.make.make_processing_class`, for the same checkpoint.
        sharing: See `sharing.switch.SharingSwitch`.
        speculation: See `rollouts.account.RolloutAccount`.
    """
    make_backbone(model, processing_class, sharing, speculation)
    return retype(model, VLMPolicy)
