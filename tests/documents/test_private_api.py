"""Private names of other libraries that we use, and behaviour that we count on, each with a test."""

import ast
import importlib
import re
import tomllib
from collections.abc import Callable, Iterator

import pytest
from transformers import (
    GenerationMixin,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from hf_vlm_rl._retype import Retyped
from hf_vlm_rl.scoring.head import VLMScored
from tests.documents.behaviour import BEHAVIOUR
from tests.documents.imports import modules
from tests.documents.pages import ROOT
from tests.documents.private_names import (
    a_builder_asks_for_types_splits_and_tables,
    a_class_names_weights_that_it_does_not_miss,
    a_config_keeps_a_commit_to_itself,
    a_config_knows_its_source,
    a_forward_notes_that_hidden_states_are_collected,
    a_generation_config_says_that_it_is_a_models,
    a_missing_file_can_be_none,
    a_model_carries_how_its_names_are_converted,
    a_model_is_made_of_a_config,
    a_module_lists_its_hooks,
    a_tensor_counts_its_changes,
    attention_is_chosen_by_the_config,
    batch_normalisations_are_of_one_kind,
    hooks_on_all_modules_are_listed,
    layers_call_the_checkpointing_function,
    layers_know_their_adapter,
    layers_know_whether_adapters_are_off,
    operations_are_seen,
    processors_read_images_in_one_method,
    processors_read_videos_in_one_method,
    processors_sort_their_arguments_in_one_method,
    sampling_is_one_method_that_is_given_its_criteria,
    saving_can_be_told_to_push_nothing,
    texts_become_ids_in_one_method,
    trainers_say_which_columns_they_read,
    trees_are_walked,
)

# Name: (whose, why we need it, what we count on).
PRIVATE: dict[str, tuple[str, str, Callable[[], None]]] = {
    "_BatchNorm": (
        "torch",
        "what all batch normalisations are: in training mode, an image has other features in other company",
        batch_normalisations_are_of_one_kind,
    ),
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
    "_from_model_config": (
        "transformers",
        "says where a generation config is from, and nothing of how to generate",
        a_generation_config_says_that_it_is_a_models,
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
    "_global_forward_hooks": (
        "torch",
        "as `_forward_hooks`, of hooks on all modules",
        hooks_on_all_modules_are_listed,
    ),
    "_global_forward_pre_hooks": ("torch", "as `_global_forward_hooks`", hooks_on_all_modules_are_listed),
    "_info": ("datasets", "as `_generate_tables`", a_builder_asks_for_types_splits_and_tables),
    "_internal_call": (
        "transformers",
        "`save_model` otherwise pushes where the arguments say `push_to_hub`",
        saving_can_be_told_to_push_nothing,
    ),
    "_keys_to_ignore_on_load_unexpected": (
        "transformers",
        "a model with a score in place of its language-model head loads without complaints about the head",
        a_class_names_weights_that_it_does_not_miss,
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
    "_output_capturing_hooks_installed": (
        "transformers",
        "set by a model's first forward that gives hidden states; features of a tower stay those they were",
        a_forward_notes_that_hidden_states_are_collected,
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
PRIVATE_NAME = re.compile(r"_[A-Za-z]\w*[A-Za-z]")
# Texts that look like private names and are none of anybody's objects.
TEXTS = {
    "_attn_implementation_autoset",  # a key of files that older releases wrote
    "_ARGCOMPLETE",  # a variable of the environment
    *("_ci", "_id", "_token", "_token_id", "_token_index"),  # ends of names
}


# What re-typed and scored classes have, too.
STOCK = (PreTrainedModel, GenerationMixin, ProcessorMixin, PreTrainedTokenizerBase)


@pytest.mark.parametrize("name", PRIVATE)
def test_it_is_still_there(name):
    PRIVATE[name][2]()


@pytest.mark.parametrize("claim", BEHAVIOUR)
def test_others_still_behave_so(claim):
    BEHAVIOUR[claim][2]()


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
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return names


def used_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Private names that a module reads, sets, passes, imports or has in a string, and where."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.keyword):
            names = [node.arg or ""]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            names = [node.value] if node.value not in TEXTS else []
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
            stock = STOCK if issubclass(cls, Retyped | VLMScored) else ()
            bases = [*(base for base in cls.__mro__ if not base.__module__.startswith("hf_vlm_rl")), *stock]
            own = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            assigned = [each for each in node.body if isinstance(each, ast.Assign)]
            own += [name.id for each in assigned for name in each.targets if isinstance(name, ast.Name)]
            found |= {
                name: f"{module}.{node.name}"
                for name in own
                if PRIVATE_NAME.fullmatch(name) and any(hasattr(base, name) for base in bases)
            }
    return found
