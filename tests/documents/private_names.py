"""What we count on of other libraries' private names; `test_private_api` says why we need them."""

import copy
import inspect
import tempfile

import datasets
import pyarrow as pa
import torch
from datasets.builder import Key
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper
from torch import nn
from torch.nn.modules import module as hooks
from transformers import (
    GenerationMixin,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    PythonBackend,
    TokenizersBackend,
    Trainer,
    TrainingArguments,
)
from transformers.core_model_loading import WeightRenaming, revert_weight_conversion
from transformers.utils import hub

from hf_vlm_rl.compat import CACHE


def tiny() -> LlamaForCausalLM:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))


def tuned() -> list[nn.Module]:
    """A LoRA layer, and a module that is trained as a whole."""
    model = get_peft_model(tiny(), LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"]))
    return [part for part in model.modules() if isinstance(part, BaseTunerLayer | AuxiliaryTrainingWrapper)]


def batch_normalisations_are_of_one_kind() -> None:
    from torch.nn.modules.batchnorm import _BatchNorm

    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
        assert issubclass(kind, _BatchNorm)


def a_generation_config_says_that_it_is_a_models() -> None:
    assert tiny().generation_config.to_diff_dict()["_from_model_config"] is True


def a_class_names_weights_that_it_does_not_miss() -> None:
    class Headless(LlamaModel):
        _keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"^model\.norm\."]  # noqa: RUF012

    stock = tiny()
    with tempfile.TemporaryDirectory() as folder:
        stock.save_pretrained(folder)
        _, loaded = Headless.from_pretrained(folder, output_loading_info=True)
        assert not loaded["unexpected_keys"]
        _, loaded = LlamaModel.from_pretrained(folder, output_loading_info=True)
        assert set(loaded["unexpected_keys"]) == {"lm_head.weight"}


def attention_is_chosen_by_the_config() -> None:
    config = LlamaConfig()
    config._attn_implementation = "eager"
    assert config._attn_implementation == "eager"
    source = inspect.getsource(inspect.getmodule(LlamaForCausalLM))
    assert "self.config._attn_implementation" in source, "attention modules no longer ask their config"


def a_config_keeps_a_commit_to_itself() -> None:
    config = LlamaConfig()
    config._commit_hash = "abc"
    assert copy.deepcopy(config)._commit_hash == "abc"
    assert "_commit_hash" not in config.to_diff_dict(), "it would be saved in config.json"


def a_config_knows_its_source() -> None:
    assert PreTrainedConfig(name_or_path="org/model")._name_or_path == "org/model"


def a_model_is_made_of_a_config() -> None:
    model = LlamaForCausalLM._from_config(tiny().config, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16


def processors_read_images_in_one_method() -> None:
    assert list(inspect.signature(ProcessorMixin._process_images).parameters) == ["self", "images", "kwargs"]
    assert "self._process_images(" in inspect.getsource(ProcessorMixin.__call__)


def processors_read_videos_in_one_method() -> None:
    assert list(inspect.signature(ProcessorMixin._process_videos).parameters) == ["self", "videos", "kwargs"]
    assert "self._process_videos(" in inspect.getsource(ProcessorMixin.__call__)


def processors_sort_their_arguments_in_one_method() -> None:
    parameters = inspect.signature(ProcessorMixin._merge_kwargs).parameters
    assert {"tokenizer_init_kwargs", "kwargs"} <= parameters.keys()
    assert "self._merge_kwargs(" in inspect.getsource(ProcessorMixin.__call__)


def saving_can_be_told_to_push_nothing() -> None:
    assert inspect.signature(Trainer.save_model).parameters["_internal_call"].default is False


def a_missing_file_can_be_none() -> None:
    assert (
        inspect.signature(hub.cached_files).parameters["_raise_exceptions_for_missing_entries"].default
        is True
    )
    assert "cached_files(" in inspect.getsource(hub.cached_file)


def a_model_carries_how_its_names_are_converted() -> None:
    model = tiny()
    model._weight_conversions = [WeightRenaming("stored.norm", "model.norm")]
    assert "stored.norm.weight" in revert_weight_conversion(model, model.state_dict())


def layers_call_the_checkpointing_function() -> None:
    model = tiny().train()
    model.gradient_checkpointing_enable()
    (layer,) = model.model.layers
    assert layer.gradient_checkpointing
    calls = []
    stock = layer._gradient_checkpointing_func
    layer._gradient_checkpointing_func = lambda *arguments: calls.append(1) or stock(*arguments)
    model(input_ids=torch.tensor([[1, 2]]))
    assert calls == [1]


def layers_know_their_adapter() -> None:
    for layer in tuned():
        layer._active_adapter = ["other"]
        assert layer.active_adapters == ["other"]


def layers_know_whether_adapters_are_off() -> None:
    for layer in tuned():
        layer._disable_adapters = True
        assert layer.disable_adapters


def a_builder_asks_for_types_splits_and_tables() -> None:
    class Numbers(datasets.ArrowBasedBuilder):
        def _info(self):
            return datasets.DatasetInfo(features=datasets.Features({"number": datasets.Value("int64")}))

        def _split_generators(self, dl_manager):
            return [datasets.SplitGenerator(name=datasets.Split.TRAIN, gen_kwargs={"numbers": [1, 2]})]

        def _generate_tables(self, numbers):
            yield Key(0, 0), pa.table({"number": numbers})

    with tempfile.TemporaryDirectory() as cache:
        builder = Numbers(cache_dir=cache)
        builder.download_and_prepare()
        assert builder.as_dataset("train", in_memory=True)["number"][:] == [1, 2]


def a_module_lists_its_hooks() -> None:
    module = nn.Linear(1, 1)
    module.register_forward_hook(print)
    module.register_forward_pre_hook(repr)
    assert list(module._forward_hooks.values()) == [print]
    assert list(module._forward_pre_hooks.values()) == [repr]


def hooks_on_all_modules_are_listed() -> None:
    handles = [hooks.register_module_forward_hook(print), hooks.register_module_forward_pre_hook(repr)]
    try:
        assert print in hooks._global_forward_hooks.values()
        assert repr in hooks._global_forward_pre_hooks.values()
    finally:
        for handle in handles:
            handle.remove()


def a_forward_notes_that_hidden_states_are_collected() -> None:
    model = tiny().model
    model(torch.zeros(1, 1, dtype=torch.long), output_hidden_states=True)
    assert model._output_capturing_hooks_installed is True


def a_tensor_counts_its_changes() -> None:
    tensor = torch.zeros(2)
    before = tensor._version
    tensor.add_(1)
    assert tensor._version == before + 1


def sampling_is_one_method_that_is_given_its_criteria() -> None:
    parameters = inspect.signature(GenerationMixin._sample).parameters
    assert {"input_ids", "logits_processor", "stopping_criteria", "generation_config"} <= parameters.keys()
    calls = []

    class Watched(LlamaForCausalLM):
        def _sample(self, input_ids, **kwargs):
            calls.append(kwargs[CACHE])
            return super()._sample(input_ids, **kwargs)

    model = tiny()
    model.__class__ = Watched
    for sampled in (False, True):
        model.generate(torch.tensor([[1, 2]]), max_new_tokens=1, do_sample=sampled)
    assert [type(cache).__name__ for cache in calls] == ["DynamicCache"] * 2


def texts_become_ids_in_one_method() -> None:
    for kind in (PreTrainedTokenizerBase, TokenizersBackend, PythonBackend):
        parameters = inspect.signature(kind._encode_plus).parameters
        assert {"text", "text_pair", "padding_strategy", "truncation_strategy"} <= parameters.keys()
    for method in (PreTrainedTokenizerBase.__call__, PreTrainedTokenizerBase.encode):
        assert "self._encode_plus(" in inspect.getsource(method)


def trainers_say_which_columns_they_read() -> None:
    class Reader(Trainer):
        def _set_signature_columns_if_needed(self):
            if self._signature_columns is None:
                self._signature_columns = ["prompt"]

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, report_to="none")
        trainer = Reader(model=tiny(), args=args)
    assert trainer._signature_columns is None
    trainer._set_signature_columns_if_needed()
    assert trainer._signature_columns == ["prompt"]
    assert "self._set_signature_columns_if_needed()" in inspect.getsource(Trainer._remove_unused_columns)


def trees_are_walked() -> None:
    from torch.utils._pytree import tree_leaves, tree_map_only

    assert tree_leaves({"a": (1, [2])}) == [1, 2]
    assert tree_map_only(int, lambda number: -number, {"a": (1, "b")}) == {"a": (-1, "b")}


def operations_are_seen() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    with Seen():
        torch.ones(2).neg()
    assert torch.ops.aten.neg.default in seen
