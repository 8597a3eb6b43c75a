"""What we use of other libraries' private names: the one list, with reasons, and whether it still holds."""

import ast
import copy
import importlib
import inspect
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator

import datasets
import pyarrow as pa
import pytest
import torch
from datasets.builder import Key
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper
from torch import nn
from transformers import (
    GenerationMixin,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    PythonBackend,
    TokenizersBackend,
    Trainer,
    TrainingArguments,
)
from transformers.core_model_loading import WeightRenaming, revert_weight_conversion
from transformers.utils import hub

from hf_vlm_rl._retype import Retyped
from tests.documents.imports import modules
from tests.documents.pages import ROOT


def tiny() -> LlamaForCausalLM:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))


def tuned() -> list[nn.Module]:
    """A LoRA layer, and a module that is trained as a whole."""
    model = get_peft_model(tiny(), LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"]))
    return [part for part in model.modules() if isinstance(part, BaseTunerLayer | AuxiliaryTrainingWrapper)]


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
            calls.append(kwargs["past_key_values"])
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

    trainer = Reader(model=tiny(), args=TrainingArguments(output_dir="out", use_cpu=True, report_to="none"))
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


# Name: (whose, why we need it, what we count on).
PRIVATE: dict[str, tuple[str, str, Callable[[], None]]] = {
    "_active_adapter": (
        "peft",
        "the critic's adapter for one forward; `set_adapter` would also switch which adapter has gradients",
        layers_know_their_adapter,
    ),
    "_disable_adapters": (
        "peft",
        "a wholly trained module stands for its original in the critic's forward; see `_active_adapter`",
        layers_know_whether_adapters_are_off,
    ),
    "_attn_implementation": (
        "transformers",
        "the name in its config by which an attention module looks up its function: a view of it names ours",
        attention_is_chosen_by_the_config,
    ),
    "_commit_hash": (
        "transformers",
        "the commit a model was read from, for adapters; transformers stopped to set it, and still strips it",
        a_config_keeps_a_commit_to_itself,
    ),
    "_encode_plus": (
        "transformers",
        "where each call of a tokenizer turns text into ids; texts with tickets are ours to turn",
        texts_become_ids_in_one_method,
    ),
    "_forward_hooks": (
        "torch",
        "nothing else lists hooks: where somebody else's could see it, nothing is computed once",
        a_module_lists_its_hooks,
    ),
    "_forward_pre_hooks": ("torch", "as `_forward_hooks`", a_module_lists_its_hooks),
    "_from_config": (
        "transformers",
        "`AutoModelForImageTextToText.from_config` ends here, and takes no class",
        a_model_is_made_of_a_config,
    ),
    "_generate_tables": (
        "datasets",
        "how a builder of rows is written; datasets' guide says so",
        a_builder_asks_for_types_splits_and_tables,
    ),
    "_gradient_checkpointing_func": (
        "transformers",
        "recomputing a layer in the backward pass has to use the critic's adapter as the forward did",
        layers_call_the_checkpointing_function,
    ),
    "_info": ("datasets", "as `_generate_tables`", a_builder_asks_for_types_splits_and_tables),
    "_internal_call": (
        "transformers",
        "`save_model` otherwise pushes where the arguments say `push_to_hub`",
        saving_can_be_told_to_push_nothing,
    ),
    "_name_or_path": (
        "transformers",
        "where a loaded model keeps its id: adapters and cards name their base with it",
        a_config_knows_its_source,
    ),
    "_merge_kwargs": (
        "transformers",
        "which of a call's arguments the image processor gets: they are part of a ticket",
        processors_sort_their_arguments_in_one_method,
    ),
    "_process_images": (
        "transformers",
        "the one step of every native processor that turns images into tensors; ours makes tickets there",
        processors_read_images_in_one_method,
    ),
    "_process_videos": (
        "transformers",
        "the same step for videos; what it returns as the text of a video is kept with its tensors",
        processors_read_videos_in_one_method,
    ),
    "_python_dispatch": (
        "torch",
        "`TorchDispatchMode`, by which `plan` counts bytes; torch documents it under this path",
        operations_are_seen,
    ),
    "_pytree": ("torch", "the tensors among an operation's arguments, for `plan`", trees_are_walked),
    "_raise_exceptions_for_missing_entries": (
        "transformers",
        "whether a checkpoint has a file, without an exception for each that it lacks",
        a_missing_file_can_be_none,
    ),
    "_sample": (
        "transformers",
        "the sampling loop: it knows which rows are finished; where it is no longer called, all rows stay",
        sampling_is_one_method_that_is_given_its_criteria,
    ),
    "_set_signature_columns_if_needed": (
        "transformers",
        "as `_signature_columns`, which it fills; trainers override it with the columns they read",
        trainers_say_which_columns_they_read,
    ),
    "_signature_columns": (
        "transformers",
        "the columns that a trainer reads: one that reads no images is refused a dataset with images",
        trainers_say_which_columns_they_read,
    ),
    "_split_generators": ("datasets", "as `_generate_tables`", a_builder_asks_for_types_splits_and_tables),
    "_version": (
        "torch",
        "rises with every change of a tensor: features of a frozen tower are kept while it stands",
        a_tensor_counts_its_changes,
    ),
    "_weight_conversions": (
        "transformers",
        "where a model keeps how stored names become its own; converts InternVL's original names back",
        a_model_carries_how_its_names_are_converted,
    ),
}
PRIVATE_NAME = re.compile(r"_[a-z]\w*[a-z]")
BY_NAME = ("getattr", "hasattr", "setattr", "delattr", "pop")


@pytest.mark.parametrize("name", PRIVATE)
def test_it_is_still_there(name):
    PRIVATE[name][2]()


def test_the_list_is_complete_and_holds_nothing_else():
    own = defined_here()
    used: dict[str, str] = {}
    for module, tree in modules().items():
        for name, line in used_in(tree):
            if name in PRIVATE or name not in own:
                used.setdefault(name, f"src/hf_vlm_rl/{module}.py:{line}")
    used |= overridden()
    assert {name: where for name, where in used.items() if name not in PRIVATE} == {}
    assert PRIVATE.keys() == set(used), "no longer used: delete it from the list"


def test_ruff_allows_these_names_and_no_others():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    attributes = {
        node.attr for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    assert set(settings["flake8-self"]["extend-ignore-names"]) == PRIVATE.keys() & attributes


def defined_here() -> set[str]:
    """Private names that the package itself gives to something."""
    names = {path.split("/")[-1] for path in modules()}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return names


def used_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Private names that a module reads, sets, passes or imports, and where."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.keyword):
            names = [node.arg or ""]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in BY_NAME:
            names = [
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        for name in names:
            if PRIVATE_NAME.fullmatch(name):
                yield name, getattr(node, "lineno", node.value.lineno if isinstance(node, ast.keyword) else 0)


def overridden() -> dict[str, str]:
    """Private names of other libraries' classes that a class of ours defines again, and which class does."""
    found = {}
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            cls = vars(importlib.import_module(f"hf_vlm_rl.{module}".replace("/", "."))).get(node.name)
            if cls is None:  # made inside a function
                continue
            # A re-typed object has its stock class, too.
            stock = (PreTrainedModel, GenerationMixin, ProcessorMixin) if issubclass(cls, Retyped) else ()
            bases = [*(base for base in cls.__mro__ if not base.__module__.startswith("hf_vlm_rl")), *stock]
            own = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            found |= {
                name: f"{module}.{node.name}"
                for name in own
                if PRIVATE_NAME.fullmatch(name) and any(hasattr(base, name) for base in bases)
            }
    return found
