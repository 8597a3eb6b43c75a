"""One prompt, one prefill: `generate` runs a prompt once, and its rows share one copy of the cache.

A prefix that unequal prompts begin with, as the turns of one conversation do, runs once as well.
If a decoder has windows, states or anything else beside plain attention, each row gets a copy.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from transformers import Cache, DynamicCache

from ..._ranks import most
from ...compat import CACHE
from ..arguments import GENERATE
from ..caches.known_caches import keeps_all_keys, require_known_cache
from ..caches.prefix_cache import share_prompts
from ..images.row_images import Rows
from ..report import Refused
from ..rotary import require_steady
from ..sharing.share import keys_of_rows, require_unwatched
from ..sharing.visibility import looks_ahead
from ..transfer import without_waiting
from .agreement import SHARED_CACHE, STEP
from .distinct_prompts import DistinctPrompts

# If `generate` can save fewer prompt tokens than this, the shared cache costs more than it saves.
WORTHWHILE = 256

# On a card, rows get copies of their prompts while the copies take at most so many bytes a layer: attention
# to a shared prompt launches some 30 kernels more in each layer (docs/performance.md).
COPIES = 64 << 20

# Settings that `generate` may get with these values, which change nothing.
PLAIN = {
    "cache_implementation": "dynamic",
    "num_beams": 1,
    "num_return_sequences": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "use_cache": True,
}

# Settings that concern sampling and stopping alone: each row still continues one prompt.
SETTINGS = frozenset(
    """
    _from_model_config bad_words_ids begin_suppress_tokens bos_token_id disable_compile do_sample
    eos_token_id exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id max_length
    max_new_tokens max_time min_length min_new_tokens min_p no_repeat_ngram_size output_logits
    output_scores pad_token_id remove_invalid_values renormalize_logits repetition_penalty
    return_dict_in_generate stop_strings suppress_tokens temperature top_h top_k top_p
    transformers_version typical_p
    """.split()  # noqa: SIM905
)


def prefill_once(policy: Any, kwargs: dict[str, Any], rows: Rows, sharded: bool) -> dict[str, Any] | None:
    """Run the distinct prompts of a batch through the model, all but their last token.

    `kwargs` are the arguments of `generate`, and `rows` its rows, as `locate.locate` returns them; `sharded`
    says whether weights are spread over ranks, which then all call this function.

    Returns:
        Arguments for the stock `generate` with a filled key-value cache and no images; None if
        prompts do not repeat, or for a reason that the report gets.
    """
    backbone = policy.base_model
    if backbone.sharing.mode is False:
        return None
    refusal: Refused | None = None
    try:
        _require_plain_generate(policy, kwargs)
    except Refused as refused:
        refusal = refused
    # Whoever went on alone would wait for the other ranks for ever.
    if sharded and any(most([refusal is not None], kwargs["input_ids"].device)):
        refusal = refusal or Refused("the prompts of another rank cannot be run ahead")
    if refusal is None:
        try:
            return _prefilled(policy, kwargs, rows, sharded)
        except Refused as refused:
            refusal = refused
    backbone.report.refuse("not_shared", Refused(f"generate: {refusal}", refusal.lasting))
    return None


def _prefilled(policy: Any, kwargs: dict[str, Any], rows: Rows, sharded: bool) -> dict[str, Any] | None:
    """What `prefill_once` returns; None where nothing is saved."""
    backbone = policy.base_model
    ids, mask = kwargs["input_ids"], kwargs.get("attention_mask")
    host_mask = torch.ones_like(rows.copy.ids) if mask is None else rows.copy.mask.cpu().long()
    mask = torch.ones_like(ids) if mask is None else mask
    keys = torch.cat([keys_of_rows(backbone, rows.copy.ids, rows.images), host_mask], dim=1)
    _, inverse = torch.unique(keys, dim=0, return_inverse=True)
    first_rows = [int((inverse == number).nonzero()[0]) for number in range(int(inverse.max()) + 1)]
    indices = without_waiting(torch.tensor(first_rows), ids.device)
    prompts = DistinctPrompts(policy, ids[indices], mask[indices], rows.choose(first_rows))
    ends_inside = bool((keys[:, ids.shape[1] - 2 : ids.shape[1]] < 0).all(dim=1).any())
    if any(most([ends_inside], ids.device)) if sharded else ends_inside:
        raise Refused("a prompt ends inside an image")
    layout = None if sharded else prompts.layout()
    saved = (len(ids) - len(first_rows)) * ids.shape[1] + (0 if layout is None else layout.shared)
    pays = saved >= (WORTHWHILE if backbone.sharing.mode == "auto" else 1)
    if not (any(most([pays], ids.device)) if sharded else pays):
        if saved:
            raise Refused(f"fewer than {WORTHWHILE} prompt tokens could be saved")
        return None
    backbone.verdicts.ask(STEP, backbone.decoder)
    cache = DynamicCache(config=backbone.decoder.config)  # some backbones do not make one themselves
    require_known_cache(cache)
    computed = prompts.fill(cache, layout, sharded)
    if cache.get_seq_length() != ids.shape[1] - 1:
        raise Refused("the model keeps its cache elsewhere", lasting=True)
    repeated = len(first_rows) < len(ids)
    filled = _for_rows(backbone, cache, inverse, repeated)
    if backbone.processing_class.state.family.grids:
        backbone.rope_deltas = backbone.rope_deltas[without_waiting(inverse, ids.device)]
    backbone.report.count(
        prompts=len(ids),
        prompts_prefilled=len(first_rows),
        prompt_tokens=len(ids) * (ids.shape[1] - 1),
        prompt_tokens_prefilled=computed,
    )
    # transformers takes a cache or `cache_implementation`, not both.
    unnamed = {name: value for name, value in kwargs.items() if name != "cache_implementation"}
    return unnamed | {CACHE: filled, "attention_mask": mask}


def _for_rows(backbone: Any, cache: DynamicCache, prompt: torch.Tensor, repeated: bool) -> Cache:
    """A cache of B rows from that of the distinct prompts: rows share its keys, or each gets a copy.

    They share where a step would otherwise be bound by memory: on a CPU always, on a card from `COPIES` on.
    `cache`, of U prompts, changes where rows get copies. `prompt` (B,), on the host, says which prompt each
    row continues, and `repeated` whether some continue the same.
    """
    if repeated and keeps_all_keys(backbone.decoder.config) and not _copies_pay(cache, prompt):
        try:
            backbone.verdicts.ask(SHARED_CACHE, backbone.decoder)
            return share_prompts(cache, prompt)
        except Refused:
            pass  # copies for all rows give the same numbers and take more memory
    cache.reorder_cache(cast(torch.LongTensor, without_waiting(prompt, backbone.device)))
    return cache


def _copies_pay(cache: DynamicCache, prompt: torch.Tensor) -> bool:
    layer: Any = cache.layers[0]
    prompts, *_ = layer.keys.shape
    size = (layer.keys.nbytes + layer.values.nbytes) // prompts
    return layer.keys.device.type != "cpu" and (len(prompt) - prompts) * size <= COPIES


def _require_plain_generate(policy: Any, kwargs: Mapping[str, Any]) -> None:
    """The gate: refuse a `generate` whose settings need whole prompts, in rows of their own."""
    backbone, ids = policy.base_model, kwargs["input_ids"]
    if backbone.sharing.refusal is not None:
        raise Refused(backbone.sharing.refusal)
    if not reads_forwards(backbone):
        raise Refused("prompt tokens attend in both directions")
    if policy.prepare_inputs_for_generation.__func__ is not type(policy).prepare_inputs_for_generation:
        raise Refused("somebody else prepares the inputs, as PEFT does to put learned tokens before a prompt")
    for name, value in kwargs.items():  # settings may come as arguments of `generate`, too
        if name not in GENERATE | SETTINGS and not _is_plain(name, value):
            raise Refused(f"{name} is given")
    for settings in (kwargs.get("generation_config"), policy.generation_config):
        for name, value in (settings.to_diff_dict() if settings is not None else {}).items():
            # `cache_implementation` counts even at its default: what the call leaves open, transformers fills
            # in from the model's own generation config again.
            plain = _is_plain(name, value) and name != "cache_implementation"
            if name not in SETTINGS and kwargs.get(name) is None and not plain:
                raise Refused(f"{name} is {value}")
    if ids.shape[1] < 2:
        raise Refused("the prompt is one token")
    # The prefill runs without the last token: as a shorter batch, it might get other frequencies.
    require_steady(ids.shape[1], backbone.sharing.steady_positions)
    if kwargs.get("attention_mask") is None and _may_be_padded(policy, kwargs):
        raise Refused("there is no attention_mask, and prompts may be padded")
    for name in ("output_attentions", "output_hidden_states"):
        # A config has them only if a user has set them.
        if getattr(policy.config, name, False):
            raise Refused(f"{name} is set in the model's config")
    require_unwatched(backbone)


def reads_forwards(backbone: Any) -> bool:
    """Whether no token of a prompt sees those behind it, so that its last token may be a step."""
    return not (backbone.family.prefix_attention or any(map(looks_ahead, backbone.decoder.modules())))


def _is_plain(name: str, value: Any) -> bool:
    return value is None or (name in PLAIN and value == PLAIN[name])


def _may_be_padded(policy: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether ids hold a pad token, by which `generate` would find padding, as it gets no mask."""
    settings = (kwargs.get("generation_config"), policy.generation_config, policy.processing_class)
    # The passed generation config may be None.
    pad_ids = [kwargs.get("pad_token_id"), *(getattr(source, "pad_token_id", None) for source in settings)]
    return any(bool((kwargs["input_ids"] == pad).any()) for pad in pad_ids if pad is not None)
