"""A critic for PPO that needs no second copy of the model: its own adapter on the policy's weights."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from ..policy.policy import VLMPolicy
from ..policy.trained.lora import lora_config

NAME = "critic"


def shared_critic(policy: PeftModel, r: int = 16, name: str = NAME, **peft_kwargs: Any) -> "SharedCritic":
    """A value model on the frozen base weights of a policy.

    ```python
    policy = get_peft_model(policy, policy.lora_config(r=16))
    trainer = PPOTrainer(model=policy, ref_model=None, value_model=shared_critic(policy), ...)
    ```

    Args:
        policy: A policy with an adapter; it gets a second one, which its own forwards do not use.
        r: LoRA rank of the critic, on every linear layer of the decoder.
        name: Of the critic's adapter; `policy.save_pretrained` writes it to a folder of that name.
        **peft_kwargs: Further `LoraConfig` fields.

    Raises:
        TypeError: If `policy` is no policy with a PEFT adapter.
        ValueError: If weights other than adapters are trained, or the name is taken.
    """
    if not isinstance(policy, PeftModel) or not isinstance(policy.get_base_model(), VLMPolicy):
        raise TypeError(
            f"Got a {type(policy).__name__}. Expected get_peft_model(policy, policy.lora_config(...)): "
            "only frozen weights can be shared. Without an adapter, use AutoVLMValueModel."
        )
    adapters = {id(p) for layer in _tuned(policy) for p in layer.parameters()}
    trained = [n for n, p in policy.named_parameters() if p.requires_grad and id(p) not in adapters]
    if trained:
        raise ValueError(
            f"The policy trains {len(trained)} tensors that are no adapter ({', '.join(trained[:3])}); the "
            "critic would train them too. Freeze them, or use AutoVLMValueModel."
        )
    if name in policy.peft_config:
        raise ValueError(f"The policy has an adapter {name!r} already. Pass another name.")
    before = set(map(id, policy.parameters()))
    policy.add_adapter(name, lora_config(policy.get_base_model(), r, **{"task_type": None} | peft_kwargs))
    return SharedCritic(policy, name, [weight for weight in policy.parameters() if id(weight) not in before])


class SharedCritic(nn.Module):
    """What `shared_critic` returns; PPO calls `backbone` and `score`.

    `score` is a linear head, H -> 1, in float32, at zero: the first values are 0.
    """

    base_model_prefix = "backbone"

    def __init__(self, policy: PeftModel, name: str, weights: list[nn.Parameter]):
        super().__init__()
        self.backbone = _Backbone(policy, name, weights)
        self.score = _Head(policy.config.get_text_config().hidden_size, 1, bias=False, device=policy.device)
        nn.init.zeros_(self.score.weight)

    def forward(self, **kwargs: Any) -> torch.Tensor:
        """Values (B, L, 1); arguments as for the policy's backbone."""
        return self.score(self.backbone(**kwargs).hidden_states[-1])


class _Head(nn.Linear):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden.to(self.weight.dtype))


class _Backbone(nn.Module):
    """The policy's backbone with the critic's adapter. Owns no weights: they are the policy's."""

    def __init__(self, policy: PeftModel, name: str, weights: list[nn.Parameter]):
        super().__init__()
        self._policy = (policy,)  # in a tuple: not a submodule of its own value model
        self._name, self._weights = name, weights
        self._arm()

    def forward(self, **kwargs: Any) -> BaseModelOutput:
        """`hidden_states[-1]` (B, L, H); arguments as for the policy's backbone."""
        (policy,) = self._policy
        model: Any = policy.get_base_model()
        if torch.is_grad_enabled():
            self._arm()
        kwargs |= {"output_hidden_states": False, "use_cache": False, "return_dict": True}
        layers = model.get_submodule(model.family.language).layers
        with _active(policy, self._name), _checkpointed(layers, self._name):
            hidden = model.base_model(**kwargs).last_hidden_state
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=(hidden,))

    def _arm(self) -> None:
        # PEFT freezes all adapters but the active one whenever it switches, as it does for each
        # forward of the reference.
        for weight in self._weights:
            weight.requires_grad_(True)


def _tuned(module: nn.Module) -> list[Any]:
    kinds = (BaseTunerLayer, AuxiliaryTrainingWrapper)
    return [part for part in module.modules() if isinstance(part, kinds)]


@contextmanager
def _active(module: nn.Module, name: str) -> Iterator[None]:
    """Use the adapter `name`, and no other, in the layers below `module`.

    PEFT's own `set_adapter` would also decide which adapter has gradients, for the backward pass of
    all forwards alike.
    """
    layers = _tuned(module)
    # PEFT reads these two in each layer's forward and has no public way to set them alone.
    before = [(layer._active_adapter, layer._disable_adapters) for layer in layers]
    try:
        for layer in layers:
            layer._active_adapter = [name]
            # Without this adapter, a layer is its base layer, and a wholly trained module its original.
            held = any(name in attrgetter(path)(layer) for path in layer.adapter_layer_names)
            layer._disable_adapters = not (held or isinstance(layer, BaseTunerLayer))
        yield
    finally:
        for layer, (active, disabled) in zip(layers, before, strict=True):
            layer._active_adapter, layer._disable_adapters = active, disabled


@contextmanager
def _checkpointed(layers: Iterable[Any], name: str) -> Iterator[None]:
    """Where layers are checkpointed, recompute them in the backward pass with the same adapter."""
    # Transformers gives each checkpointed layer the function under this name and offers no other way to it.
    # Layers that cannot be checkpointed lack `gradient_checkpointing`.
    before = {
        layer: layer._gradient_checkpointing_func
        for layer in layers
        if getattr(layer, "gradient_checkpointing", False)
    }
    try:
        for layer, checkpoint in before.items():
            layer._gradient_checkpointing_func = _with_adapter(checkpoint, layer, name)
        yield
    finally:
        for layer, checkpoint in before.items():
            layer._gradient_checkpointing_func = checkpoint


def _with_adapter(checkpoint: Callable, layer: nn.Module, name: str) -> Callable:
    def run(function: Callable, *args: Any) -> Any:
        return checkpoint(_active(layer, name)(function), *args)

    return run
