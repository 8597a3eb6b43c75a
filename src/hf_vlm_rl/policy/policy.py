"""The policy type: the stock transformers model, re-typed in place, that understands tickets.

`VLMPolicy` is mixed into the `...ForConditionalGeneration` object and `VLMBackbone` into its
multimodal backbone. Neither adds a module, a parameter or a config entry: state-dict keys,
`architectures` and saved files are those of the bare model, and with no image and no ticket it
computes exactly what the bare model computes.
"""

import functools
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationMixin, LogitsProcessorList, PreTrainedModel

from .._ranks import launched_ranks
from .._retype import Retyped, overriding, retype
from .._saved_names import SavedNames
from ..compat import CACHE
from ..errors import TicketError
from ..families import VLMFamily
from ..front.serving import serving
from ..processing.encoded_rows import check_prompts
from ..processing.ids.tokenizer import IdsTokenizer
from ..processing.tokenizer import VLMTokenizer
from .backbone import VLMBackbone, make_backbone
from .chat import chat
from .fused_head import of_labelled_tokens
from .generate.agreement import SHARED_CACHE, STEP
from .generate.finished import keeping_rows, running_batch, sample
from .generate.prefill import prefill_once
from .generate.processors import NeverSample
from .images.image_tokens import forbid, from_padding, labels_answered, make_certain, read_images, unlabelled
from .images.inputs import generating, inside_generate, model_inputs
from .images.locate import cached_tokens, drafting, has_pixels, locate, tickets_inside
from .images.spare_types import without_spare_types
from .kept_logits import kept_by_place, logits_of, takes_places
from .ranks import is_sharded
from .report import Refused
from .serving import compare
from .sharing.agreement import ROWS
from .sharing.settings import Mode, forbidden
from .trained.lora import lora_config
from .trained.parts import check_trained, freeze
from .trie import require_no_trie

# The numbers of `sharing_report` that forwards and `generate` count.
COUNTED = (
    *("tokens", "tokens_computed", "levels", "row_steps", "row_steps_run"),
    *("prompts", "prompts_prefilled", "prompt_tokens", "prompt_tokens_prefilled"),
)

PREDICTED_FROM_PADDING = "a label is predicted from padding: the first token of a left-padded row has one"

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from peft import LoraConfig

    class _StockModel(PreTrainedModel, GenerationMixin):
        """What the policy finds in the class that it is mixed into."""

        @property
        def base_model(self) -> VLMBackbone: ...

else:
    _StockModel = object


class VLMPolicy(Retyped, SavedNames, _StockModel):
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
            check_trained(self, kwargs)
            batch = running_batch(self, kwargs)
            if batch is None:
                return compute(self, kwargs)
            return batch.forward(functools.partial(compute, self), kwargs)

        def compute(self: Any, kwargs: dict[str, Any]) -> Any:
            require_no_trie(kwargs)
            kwargs = without_spare_types(self.base_model, kwargs)
            # As the trainer passes them, tickets included: labels and logits below belong to these ids.
            ids: Any = kwargs.get("input_ids")
            places, never = None, own_generate and generating()
            prompts = False
            has_tickets = tickets_inside(self.base_model, kwargs)
            # A batch of text alone keeps its `logits_to_keep`, and equals stock bit for bit.
            if by_place and (has_tickets or has_pixels(kwargs)):
                kwargs |= kept_by_place(kwargs)
            if has_tickets:
                places, prompts = read_images(self.base_model, ids)
                # In inference mode, a caller may sample from these logits without `generate`.
                never = never or prompts or torch.is_inference_mode_enabled()
                if kwargs.get("labels") is not None:
                    kwargs["labels"] = unlabelled(kwargs["labels"], ids, places)
            padding_reason = PREDICTED_FROM_PADDING if from_padding(kwargs) else None
            # Steps of `generate` set no context variable: that would break torch's graph of a step.
            with (
                forbidden(padding_reason) if padding_reason else nullcontext(),
                labels_answered() if has_tickets else nullcontext(),
            ):
                output = stock.forward(self, **kwargs)
            # A class with a `generate` of its own may drop our `NeverSample` (Janus, transformers 5.23).
            if never:
                forbid(logits_of(output), self.placeholder_ids)
            if places is not None and not prompts:
                make_certain(logits_of(output), ids, places, kwargs.get("logits_to_keep"))
            return output

        return {"generate": generate, "forward": forward, "_sample": _sample}

    def __setattr__(self, name: str, value: Any) -> None:
        assigned: Any = of_labelled_tokens(value) if name == "forward" else value
        super().__setattr__(name, assigned)

    @property
    def processing_class(self) -> VLMTokenizer:
        """The processing class for trainers: the native processor, tokenizer-shaped."""
        # A model without a backbone is its own `base_model`, whose attribute would be this property again.
        of_backbone: Any = VLMBackbone.processing_class
        return of_backbone.fget(self.base_model)

    @property
    def tokenizer(self) -> IdsTokenizer:
        """The processing class for trainers that know only texts and ids; see `IdsTokenizer`."""
        return self.processing_class.as_tokenizer()

    @property
    def family(self) -> VLMFamily:
        """The row that describes this kind of model, written by hand or derived."""
        return self.processing_class.state.family

    @property
    def placeholder_ids(self) -> tuple[int, ...]:
        """Ids of image and video placeholders and of other parts of images; `generate` samples none."""
        return self.processing_class.state.never_sampled

    def sharing_report(self) -> dict[str, Any]:
        """What was computed once so far, and why not more.

        Returns:
            `images_encoded` and `images_reused`: images that went through the vision tower, and images
            whose features were there already. `tokens` and `tokens_computed`: in forwards that shared
            prefixes, the batch's tokens and those that the decoder computed; `levels`: the longest chain of
            shared prefixes in one row, 1 for prompts and completions, more for conversations that part at
            different turns.
            `prompts` and `prompts_prefilled`: in `generate` calls whose prompts repeat or begin alike, all
            prompts and the distinct ones; `prompt_tokens` and `prompt_tokens_prefilled`: the tokens of all
            prompts and those that the decoder computed.
            `not_shared`: reason to number of forwards, or of `generate` calls ("generate: ..."), for which
            stock computed every row. `packed`: whether rows that begin alike run in one packed row in
            training; if not, `not_shared` has the reason after a forward.
            `row_steps` and `row_steps_run`: in `generate` calls that let finished rows leave, rows times
            decoding steps, and how many of these the model ran. `rows_kept`: reason to number of `generate`
            calls that did not let them leave.
            `native_inputs`: `VLMFamily.native_inputs`; if True, no prompt is ever shared.
        """
        backbone = self.base_model
        features, report = backbone.feature_cache, backbone.report
        return (
            {"images_encoded": features.encoded, "images_reused": features.reused}
            | {name: report.numbers[name] for name in COUNTED}
            | {subject: dict(reasons) for subject, reasons in report.reasons.items()}
            | {"packed": backbone.sharing.packed, "native_inputs": self.family.native_inputs}
        )

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

    def serving(self, *servers: str, compare_every: int = 20) -> "AbstractContextManager[str]":
        """Answer trainers that sample with vLLM on other machines, for the length of a block.

        The address goes where a trainer takes that of a vLLM server; rows are those of
        `tokenizer.with_tickets`, and `processing_class=policy.tokenizer`:

            with policy.serving("http://gpu:8000") as url:
                args = GRPOConfig("out", use_vllm=True, vllm_mode="server", vllm_server_base_url=url)
                GRPOTrainer(policy, processing_class=policy.tokenizer, args=args, ...).train()

        Args:
            *servers: Addresses of `vllm serve`, 0.28 or newer; several share the requests.
            compare_every: vLLM's log-probs of one completion are compared with this policy's at the first
                request, at the first after weights were sent, and then at each so many-th, >= 1.

        Returns:
            A context manager that gives the address, which only this machine can reach.

        Raises:
            ImportError: If aiohttp is not installed.
            UnsupportedModelError: If the model's prompts attend in both directions.
            ValueError: If there is no address of a server.
        """
        return serving(self.tokenizer, servers, functools.partial(compare, self), compare_every)

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

    @torch.no_grad()
    def _generate_with_images(self, generate: Any, kwargs: dict[str, Any]) -> Any:
        inputs = kwargs.pop("inputs", None)
        if inputs is not None:
            kwargs["input_ids"] = inputs
        settings: Any = kwargs.get("generation_config")
        if settings is not None and settings.is_assistant:
            with drafting():
                return generate(**kwargs)
        kwargs = without_spare_types(self.base_model, kwargs)
        prompt: Any = kwargs.get("input_ids")
        cached = cached_tokens(kwargs)
        has_tickets = tickets_inside(self.base_model, kwargs, cached)
        kwargs, rows = locate(self.base_model, kwargs, cached)
        if has_tickets:
            assert rows is not None  # tickets in the ids give each row its images
            tails = [row.tail for row in rows.images]
            check_prompts(self.processing_class, rows.copy.ids, rows.copy.mask, tails)
        restored: Any = kwargs.get("input_ids")
        processors = kwargs.pop("logits_processor", None) or []
        kwargs["logits_processor"] = LogitsProcessorList([*processors, NeverSample(self.placeholder_ids)])
        # A cache that the caller has passed keeps all its rows: he may go on with it.
        reason = f"{CACHE} is given" if kwargs.get(CACHE) is not None else None
        with inside_generate(), keeping_rows(reason):
            if rows is not None:
                sharded = is_sharded(self.base_model)
                prefilled = prefill_once(self, kwargs, rows, sharded)
                kwargs = prefilled or kwargs | model_inputs(
                    self.base_model, restored[:, cached:], rows.columns(slice(cached, None)), kwargs, sharded
                )
            output = generate(**kwargs)
        if restored is not None and restored is not prompt:
            # Callers compare or re-use the prompt that they passed: give it back with its tickets.
            sequences = output if isinstance(output, torch.Tensor) else output.sequences
            copies = len(sequences) // len(prompt)
            sequences[:, : prompt.shape[1]] = prompt.repeat_interleave(copies, dim=0)
        return output


def make_policy(model: Any, processing_class: VLMTokenizer, sharing: Mode = "auto") -> VLMPolicy:
    """Re-type a stock `...ForConditionalGeneration` model, its backbone and its decoder in place."""
    make_backbone(model, processing_class, sharing)
    policy = retype(model, VLMPolicy)
    backbone = policy.base_model
    if launched_ranks() > 1 and backbone.sharing.mode is not False and backbone.sharing.refusal is None:
        # Once weights are spread over ranks, they cannot be compared with stock.
        for check in (ROWS, STEP, SHARED_CACHE):
            with suppress(Refused):  # each path asks again later and gets the same verdict
                backbone.verdicts.ask(check, backbone.decoder)
    return policy
