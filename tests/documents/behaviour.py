"""What we count on of other libraries' behaviour that no interface promises: reasons, and small probes."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import accelerate.hooks
import torch
import trl
import trl.trainer.utils
from packaging.version import Version
from torch import nn
from transformers import (
    AutoModelForImageTextToText,
    DynamicCache,
    LlamaForCausalLM,
    LlamaModel,
    Trainer,
)
from transformers.cache_utils import LinearAttentionLayer
from transformers.core_model_loading import revert_weight_conversion

from hf_vlm_rl.compat import CACHE
from hf_vlm_rl.families.tiny import recipe
from hf_vlm_rl.policy.foreign_hooks import foreign_hook
from hf_vlm_rl.policy.kept_logits import takes_places
from tests.documents.private_names import tiny

IDS = torch.zeros(1, 3, dtype=torch.long)


def arguments_of(module: nn.Module, run: Callable[[], Any]) -> dict[str, Any]:
    """The keyword arguments that a module is called with."""
    given: dict[str, Any] = {}
    hook = module.register_forward_pre_hook(lambda _, args, kwargs: given.update(kwargs), with_kwargs=True)
    try:
        with torch.no_grad():
            run()
    finally:
        hook.remove()
    return given


def decoders_pass_keywords_to_attention() -> None:
    model = tiny()
    attention = model.model.layers[0].self_attn
    assert arguments_of(attention, lambda: model.model(IDS, of_ours="a layout"))["of_ours"] == "a layout"


def backbones_pass_keywords_to_decoders() -> None:
    for family in ("internvl", "qwen2_5_vl", "gemma3"):
        model = AutoModelForImageTextToText.from_config(recipe(family).config).base_model
        ids = torch.ones(1, 3, dtype=torch.long)
        given = arguments_of(
            model.language_model, functools.partial(model, input_ids=ids, of_ours="a layout")
        )
        assert given["of_ours"] == "a layout", family


def methods_of_trainers_name_themselves_and_their_batch() -> None:
    names = [name for name in dir(trl) if name.endswith("Trainer")]
    kinds = [Trainer, *(getattr(trl, name) for name in names)]
    for kind in kinds:
        if "compute_loss" in dir(kind):
            named = inspect.unwrap(kind.compute_loss).__code__.co_varnames
            assert named[0] == "self", kind
            assert "inputs" in named, kind


def bytecode_names_attributes() -> None:
    code = inspect.unwrap(LlamaModel.forward).__code__
    assert {"embed_tokens", "layers", "norm"} <= set(code.co_names)
    assert "super" in inspect.unwrap(type("Child", (nn.Module,), {"f": child}).f).__code__.co_names


def child(self: Any) -> Any:
    return super(nn.Module, self).__repr__()


def only_attention_has_its_layer_and_is_causal() -> None:
    named = [
        name
        for name, module in tiny().named_modules()
        if hasattr(module, "layer_idx") and hasattr(module, "is_causal")
    ]
    assert named == ["model.layers.0.self_attn"]


def caches_keep_keys_and_values_in_layers() -> None:
    model = tiny()
    cache = DynamicCache(config=model.config)
    model(IDS.expand(2, -1), **{CACHE: cache}, use_cache=True)
    (layer,) = cache.layers
    heads, width = model.config.num_key_value_heads, model.config.head_dim
    assert layer.keys.shape == layer.values.shape == (2, heads, 3, width)
    cache.reorder_cache(torch.tensor([1, 1, 0]))  # also more rows than there are
    assert layer.keys.shape[0] == 3


def recurrent_layers_keep_two_states() -> None:
    layer = LinearAttentionLayer()
    for name in ("conv_states", "recurrent_states", "is_conv_states_initialized"):
        assert hasattr(layer, name), name
    assert hasattr(layer, "is_recurrent_states_initialized")
    assert hasattr(layer, "has_previous_state")


def models_list_what_they_record() -> None:
    assert {"hidden_states", "attentions"} <= set(tiny().model.can_record_outputs)


def saved_names_are_not_those_of_the_model() -> None:
    model = AutoModelForImageTextToText.from_config(recipe("internvl").config)
    own = model.state_dict()
    saved = revert_weight_conversion(model, own)
    assert saved.keys() - own.keys()
    assert {id(weight) for weight in saved.values()} == {id(weight) for weight in own.values()}
    assert model.load_state_dict(saved, strict=False).unexpected_keys  # when not: drop _saved_names.py


def an_annotation_says_that_places_are_taken() -> None:
    assert takes_places(LlamaForCausalLM.forward)


def hooks_of_gradient_checkpointing_and_placement_are_theirs() -> None:
    model = tiny()
    model.enable_input_require_grads()
    assert foreign_hook(model) is None
    linear = accelerate.hooks.add_hook_to_module(nn.Linear(1, 1), accelerate.hooks.AlignDevicesHook())
    forward = vars(linear)["forward"]
    assert getattr(forward, "func", forward).__module__.startswith("accelerate.")
    handle = model.register_forward_hook(lambda *_: None)
    assert foreign_hook(model) == __name__
    handle.remove()


def trl_counts_the_patches_of_two_words() -> None:
    source = inspect.getsource(trl.GRPOTrainer)
    if Version(trl.__version__) < Version("1.12"):
        assert "<|image_pad|>" not in source  # it counts nothing
        return
    assert '("<|image_pad|>", "<|image|>")' in source
    assert "merge_size" in source


def trl_assigns_a_head_that_takes_labels_by_themselves() -> None:
    if Version(trl.__version__) < Version("1.16"):
        return
    model = tiny()
    trl.trainer.utils.add_fused_lm_head(model)
    parameters = inspect.signature(model.forward.__func__, follow_wrapped=False).parameters
    assert {"self", "fused_lm_head", "labels", "shift_labels"} <= parameters.keys()
    assert parameters["fused_lm_head"].default is False
    labels = torch.tensor([[-100, 1, -100]])
    whole = model(IDS, labels=labels, fused_lm_head=True).log_probs
    shifted = model(IDS, shift_labels=torch.tensor([[1, -100, -100]]), fused_lm_head=True).log_probs
    assert whole.shape == (1, 2)
    assert torch.equal(whole, shifted[:, :2])


# What we count on: (whose, why we need it, the probe).
BEHAVIOUR: dict[str, tuple[str, str, Callable[[], None]]] = {
    "stock decoders hand unknown keywords down to attention": (
        "transformers",
        "the layout of packed rows reaches attention modules as a keyword (sharing/hooks.py)",
        decoders_pass_keywords_to_attention,
    ),
    "stock backbones hand unknown keywords down to their decoder": (
        "transformers",
        "the layout comes to the decoder as a keyword (sharing/share.py); what nobody reads is refused "
        "(known_arguments.py)",
        backbones_pass_keywords_to_decoders,
    ),
    "methods of trainers call themselves `self` and their batch `inputs`": (
        "transformers, TRL",
        "the calling trainer and its batch are found among the frames (processing/callers.py)",
        methods_of_trainers_name_themselves_and_their_batch,
    ),
    "`co_names` of a method lists the attributes that it reads": (
        "Python",
        "which parts and fields a stock forward reads is derived from it (families/derive_parts.py)",
        bytecode_names_attributes,
    ),
    "attention modules, and no others, have `layer_idx` and `is_causal`": (
        "transformers",
        "they are re-typed to compute packed rows (sharing/hooks.py)",
        only_attention_has_its_layer_and_is_causal,
    ),
    "layers of a cache have `keys` and `values`, and `reorder_cache` takes any number of rows": (
        "transformers",
        "prompts are prefilled once, and finished rows leave (caches/prefix_cache.py, known_caches.py)",
        caches_keep_keys_and_values_in_layers,
    ),
    "recurrent layers of a cache have `conv_states` and `recurrent_states`": (
        "transformers",
        "rows go on from their prompt's states (sharing/states.py)",
        recurrent_layers_keep_two_states,
    ),
    "`can_record_outputs` lists what `output_...` in a config makes a model collect": (
        "transformers",
        "a decoder that collects more runs as it stands (sharing/share.py)",
        models_list_what_they_record,
    ),
    "trainers load a checkpoint by `load_state_dict(strict=False)` under saved names, tensors unchanged": (
        "transformers",
        "a run of all weights goes on from its checkpoint (_saved_names.py)",
        saved_names_are_not_those_of_the_model,
    ),
    "the annotation of `logits_to_keep` has `Tensor` where places are taken": (
        "transformers",
        "the head multiplies the tokens of all rows at once (kept_logits.py)",
        an_annotation_says_that_places_are_taken,
    ),
    "hooks of gradient checkpointing and placement come from modules of their libraries": (
        "transformers, accelerate",
        "they change no value; under any other hook nothing is computed once (foreign_hooks.py)",
        hooks_of_gradient_checkpointing_and_placement_are_theirs,
    ),
    "GRPO counts `<|image_pad|>` or `<|image|>` against patches, `merge_size` squared to a token": (
        "TRL",
        "images that tools return are handed over with as many patches (processing/image_tickets.py)",
        trl_counts_the_patches_of_two_words,
    ),
    "a fused head is a function assigned as `forward`, which takes `shift_labels` as they are": (
        "TRL",
        "on a CPU it gets labelled positions alone (fused_head.py)",
        trl_assigns_a_head_that_takes_labels_by_themselves,
    ),
}
