"""The only place with version comparisons. Each fact: what it is, since when, when it can go."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import requires, version
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch
from packaging.requirements import Requirement
from packaging.version import Version
from transformers import GenerationMixin, cache_utils
from transformers.image_transforms import convert_to_rgb

from ._install import pip_install

# TRL loads a model id whose architecture transformers does not have through AutoModelForCausalLM
# (before: AttributeError in create_model_from_path). Since TRL 1.8; goes when trl >= 1.8 is required.
TRL_WITH_UNKNOWN_ARCHITECTURES = Version("1.8")


def require_trl_with_unknown_architectures() -> None:
    """Raise unless the installed TRL can be led to a policy class; see `loading.register`.

    Raises:
        ImportError: If TRL is older than 1.8.
    """
    installed = Version(version("trl"))
    if installed < TRL_WITH_UNKNOWN_ARCHITECTURES:
        raise ImportError(
            f"Got TRL {installed}. register() needs TRL >= {TRL_WITH_UNKNOWN_ARCHITECTURES}: older "
            "ones only load architectures that transformers has. Upgrade TRL, or use PEFT or "
            "beta=0, which need no reference model."
        )


def require_ppo() -> None:
    """Raise unless the installed TRL has `trl.experimental.ppo`, which TRL 1.13 dropped; goes with PPO here.

    Raises:
        ImportError: If it has not. Names the last version that has it.
    """
    with suppress(ImportError):  # of a TRL without `trl.experimental`
        if find_spec("trl.experimental.ppo"):
            return
    raise ImportError(
        f"Got TRL {version('trl')}, which has no PPOTrainer. The last version with "
        f"trl.experimental.ppo is 1.12.0: {pip_install('ppo')}, or 'trl<1.13'."
    )


def require_vllm_of_trl(installed: str) -> None:
    """Raise unless a version of vLLM is one that the installed TRL names in its requirements.

    TRL warns only. With another version, weights are loaded and log-probs read by rules that have changed.

    Args:
        installed: vLLM's version.

    Raises:
        ImportError: If it is not. Names the range.
    """
    for line in requires("trl") or []:
        requirement = Requirement(line)
        # A build for another device has a local part, which sorts behind the release.
        if requirement.name == "vllm" and not requirement.specifier.contains(
            Version(installed).base_version, prereleases=True
        ):
            raise ImportError(
                f"Got vLLM {installed}. TRL {version('trl')} needs vllm{requirement.specifier}: install one "
                "of those, or another TRL."
            )


# After a tool's answer, TRL asks a vLLM server with each row's own conversation (1.12: with that of the first
# of a group, for all). Since TRL 1.16 or a version between, which were not run; goes when 1.16 is required.
TRL_WITH_TOOLS_ON_SERVERS = Version("1.16")


def require_trl_with_tools_on_servers() -> None:
    """Raise unless the installed TRL runs tools with a vLLM server.

    Raises:
        ImportError: If TRL is older than 1.16.
    """
    installed = Version(version("trl"))
    if installed < TRL_WITH_TOOLS_ON_SERVERS:
        raise ImportError(
            f"Got TRL {installed}, tools and a vLLM server. Expected TRL >= {TRL_WITH_TOOLS_ON_SERVERS}: "
            "after a tool's answer, older ones ask the server with the conversation of another row."
        )


# Errors of a device: its memory is full, a kernel or the driver failed. `AcceleratorError` is there since
# torch 2.8 (before: a RuntimeError like any other); goes when torch >= 2.8 is required.
DEVICE_ERRORS: tuple[type[Exception], ...] = (
    torch.OutOfMemoryError,
    *([torch.AcceleratorError] if hasattr(torch, "AcceleratorError") else []),
)


# How transformers' forwards, outputs and `generate` call a model's cache: `cache` since 5.24 (before:
# `past_key_values`, which 5.24 still takes and renames). Goes when >= 5.24 is required.
_renamed = "cache" in signature(GenerationMixin.prepare_inputs_for_generation).parameters
CACHE = "cache" if _renamed else "past_key_values"
RENAMED_ARGUMENTS: Mapping[str, str] = {"past_key_values": CACHE, "cache_params": CACHE} if _renamed else {}

# Layers of a cache that keep nothing. Since transformers 5.23; the question goes when >= 5.23 is required.
EMPTY_LAYERS: list[type] = [cache_utils.DummyLayer] if hasattr(cache_utils, "DummyLayer") else []

# transformers' conversion gives arrays, and lays transparency on white, since 5.21 (before: PIL images, with
# transparency dropped). The question goes when >= 5.21 is required.
_gives_arrays = "return_numpy" in signature(convert_to_rgb).parameters
stock_rgb: Any = partial(convert_to_rgb, return_numpy=True) if _gives_arrays else convert_to_rgb


def merged_arguments(processor: Any, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a native `__call__` by who gets them ("images_kwargs", ...), defaults included.

    Before transformers 5.23, the method is told which arguments there are; goes when >= 5.23 is required.
    """
    # No public method sorts the arguments, and each `__call__` starts with this one.
    merge = processor._merge_kwargs
    # Classes that declare none take the arguments of the base for images and videos.
    told = "ModelProcessorKwargs" in signature(merge).parameters
    kinds = [processor.valid_processor_kwargs] if told else []
    return merge(*kinds, tokenizer_init_kwargs=processor.tokenizer.init_kwargs, **kwargs)


def require_working_class(config: Any) -> None:
    """Refuse a model that the installed transformers cannot run.

    SmolVLM of transformers 5.20.1 and 5.20.2 cuts features into pieces of `patch_size` tokens, whatever an
    image has; goes when transformers >= 5.21 is required. Llama 4 of 5.24.0 reads an output that its text
    model does not give; goes when 5.24.0 is excluded.

    Args:
        config: The model's config.

    Raises:
        ImportError: If it is such a model.
    """
    installed = Version(version("transformers"))
    if config.model_type == "llama4" and installed == Version("5.24.0"):
        raise ImportError(
            "Got a Llama 4 model, which transformers 5.24.0 cannot run: its forward reads `image_outputs` "
            "from an output without them. Install transformers 5.23.0, or newer than 5.24.0."
        )
    if config.model_type != "smolvlm" or not Version("5.20.0") < installed < Version("5.21"):
        return
    size, patch = config.vision_config.image_size, config.vision_config.patch_size
    tokens = (size // patch // config.scale_factor) ** 2
    if tokens % patch:
        raise ImportError(
            f"Got a SmolVLM with {tokens} tokens for an image, which transformers {installed} cannot run: "
            f"its forward needs a multiple of {patch}. Install transformers 5.20.0, or 5.21 or newer."
        )


def float32_is_rounded(device: str) -> bool:
    """Whether products of float32 numbers are computed with fewer digits (TF32, bfloat16).

    torch 2.9 brought a setting for each device, and its older question raises once that was set
    (`TrainingArguments(tf32=True)` sets it). The older one goes when torch >= 2.9 is required.

    Args:
        device: "cpu", "cuda", ... Devices that torch has no setting of answer as CUDA does.
    """
    backend: Any = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
    # The CPU's backend has had `matmul` since torch 2.9 only; CUDA's is older, and got the setting then.
    products: Any = getattr(backend, "matmul", None)
    if not hasattr(products, "fp32_precision"):
        return torch.get_float32_matmul_precision() != "highest"
    return products.fp32_precision not in ("none", "ieee")
