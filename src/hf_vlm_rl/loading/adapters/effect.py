"""Does an adapter do anything? Serving an adapter that does nothing looks like serving the base."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.trainable_tokens import TrainableTokensLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper
from PIL import Image
from torch import nn

from .config import changes_base


def is_finite(model: PeftModel, name: str) -> bool:
    """Whether all weights of the adapter `name` are finite."""
    weights = [weight for key, weight in model.named_parameters() if name in key.split(".")]
    return all(bool(torch.isfinite(weight).all()) for weight in weights)


def has_effect(model: PeftModel, name: str) -> bool:
    """Whether the adapter `name`, which is active, changes what a model in eval mode computes.

    Read off the weights where they can tell: a LoRA layer with A and B, a module saved whole that differs
    from the base's. Otherwise (DoRA's magnitudes, other kinds of adapters) a forward on an image and a word
    is compared with that of the base.
    """
    if any(_changes(module, name) for module in model.modules()):
        return True
    return not _told_by_weights(model, name) and _changes_logits(model)


def check_base(model: Any) -> None:
    """Refuse to take a model without its adapters for its base where it is another.

    Raises:
        ValueError: If the adapter began as a part of the base's weights, which was taken out of these.
    """
    if not isinstance(model, PeftModel):
        return
    for config in model.peft_config.values():
        if changes_base(config):
            start = getattr(config, "init_lora_weights", None)  # of LoRA alone
            raise ValueError(
                f"The adapter was made with init_lora_weights={start!r}, which takes a part out of the "
                "base's weights: without the adapter the model is not its base. Load the base by itself "
                f"(AutoVLMPolicy.from_pretrained({config.base_model_name_or_path!r})) and compare with that."
            )


def adapters_disabled(model: Any) -> bool:
    """Whether a model runs without its adapters, as inside of `disable_adapter()`."""
    return any(isinstance(module, BaseTunerLayer) and module.disable_adapters for module in model.modules())


def tied_layer(model: PeftModel) -> str | None:
    """The first module under an adapter whose weight another module has, too, as tied embeddings do."""
    owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for name, module in model.get_base_model().named_modules():
        if not isinstance(module, BaseTunerLayer) or isinstance(module, TrainableTokensLayer):
            continue  # trained tokens are merged into both
        if owners[id(getattr(module.get_base_layer(), "weight", None))] > 1:
            return name
    return None


def _changes(module: nn.Module, name: str) -> bool:
    if isinstance(module, ModulesToSaveWrapper) and name in module.modules_to_save:
        pairs = zip(
            module.modules_to_save[name].parameters(), module.original_module.parameters(), strict=True
        )
        return any(not torch.equal(trained, base.to(trained)) for trained, base in pairs)
    if not isinstance(module, LoraLayer) or not module.scaling.get(name):
        return False
    factors: list[tuple[Any, Any]] = [
        (module.lora_A, module.lora_B),
        (module.lora_embedding_A, module.lora_embedding_B),
    ]
    return any(name in down and _any(down[name]) and _any(up[name]) for down, up in factors)


def _any(part: Any) -> bool:
    weight: Any = part.weight if isinstance(part, nn.Module) else part
    return bool(weight.any())


def _told_by_weights(model: PeftModel, name: str) -> bool:
    config: Any = model.peft_config[name]
    odd = ("use_dora", "lora_bias", "trainable_token_indices", "target_parameters")
    # Options that PEFT has added over time; an older one has none of the newer.
    plain = config.peft_type == "LORA" and not any(getattr(config, key, None) for key in odd)
    return plain and config.bias == "none"


@torch.no_grad()
def _changes_logits(model: PeftModel) -> bool:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    blocks = [{"type": "image", "image": Image.fromarray(noise)}, {"type": "text", "text": "Hi"}]
    inputs = model.processing_class.apply_chat_template(
        [{"role": "user", "content": blocks}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    ).to(model.device)
    with_adapter = model(**inputs).logits
    with model.disable_adapter():
        return not torch.equal(model(**inputs).logits, with_adapter)
