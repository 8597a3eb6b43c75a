"""How rows share their prompts: a decoder's forward and backward, packed against rows by themselves.

`python -m benchmarks.ways` runs small decoders of four kinds with LoRA adapters, both ways in turns, and
prints medians of the ratios of time, those of saved activations, and how far results are off.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    AutoModel,
    Gemma3TextConfig,
    Lfm2Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3VLTextConfig,
)

from hf_vlm_rl._retype import retype
from hf_vlm_rl.policy.sharing.decoder import VLMDecoder
from hf_vlm_rl.policy.sharing.hooks import attach
from hf_vlm_rl.policy.sharing.layout import LAYOUT, find_layout

WIDTH = 512
SIZES = {
    "hidden_size": WIDTH,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
}
LINEAR, SLIDING, FULL = "linear_attention", "sliding_attention", "full_attention"


def _gemma3() -> PreTrainedConfig:
    return Gemma3TextConfig(**SIZES, head_dim=64, sliding_window=256, layer_types=[*[SLIDING] * 5, FULL])


def _qwen3_5() -> PreTrainedConfig:
    heads = {"linear_num_value_heads": 8, "linear_num_key_heads": 4}
    widths = {"linear_key_head_dim": 64, "linear_value_head_dim": 64, "head_dim": 64}
    return Qwen3_5TextConfig(**SIZES, **heads, **widths, layer_types=[*[LINEAR] * 3, FULL, LINEAR, FULL])


def _lfm2() -> PreTrainedConfig:
    return Lfm2Config(**SIZES, layer_types=["conv", "conv", FULL] * 2)


DECODERS: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen2": lambda: Qwen2Config(**SIZES),  # InternVL's
    "qwen3_vl": lambda: Qwen3VLTextConfig(**SIZES, head_dim=64),
    "gemma3": _gemma3,
    "qwen3_5": _qwen3_5,
    "lfm2": _lfm2,
}
DEFAULT = ["qwen2", "gemma3", "qwen3_5", "lfm2"]


@dataclass
class Step:
    """One forward and backward: seconds, bytes that the backward keeps, hidden states and gradients."""

    seconds: float
    saved: int
    hidden: torch.Tensor
    gradients: torch.Tensor


def make_decoder(name: str) -> nn.Module:
    """A random decoder with LoRA adapters on all its linear layers, which can share prompts."""
    torch.manual_seed(0)
    decoder = AutoModel.from_config(DECODERS[name]()).float()
    layers = [path for path, module in decoder.named_modules() if isinstance(module, nn.Linear)]
    get_peft_model(decoder, LoraConfig(r=16, target_modules=layers, init_lora_weights=False))
    attach(retype(decoder.train(), VLMDecoder))
    return decoder


def run(decoder: nn.Module, batch: dict, prompt: int) -> Step:
    """A step on the last prompt token and the completions, as a trainer asks for their log-probs."""
    adapters = [parameter for parameter in decoder.parameters() if parameter.requires_grad]
    weights = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    for parameter in adapters:
        parameter.grad = None
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    begin = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = decoder(**batch).last_hidden_state[:, prompt - 1 :]
        hidden = hidden * batch["attention_mask"][:, prompt - 1 :, None]
    wave = torch.arange(hidden[0].numel(), dtype=torch.float32).sin().view(hidden[0].shape)
    (hidden * wave).sum().backward()
    seconds = time.perf_counter() - begin
    gradients = torch.cat([parameter.grad.flatten() for parameter in adapters])
    return Step(seconds, sum(saved.values()), hidden.detach(), gradients)


def compared(stock: list[Step], ours: list[Step]) -> tuple[float, list[str]]:
    """The median ratio of time, and how far hidden states and gradients differ, relative to stock's.

    Args:
        stock: Steps of rows by themselves; the first one warms up.
        ours: Steps that took turns with these.
    """
    ratios = [theirs.seconds / own.seconds for theirs, own in zip(stock[1:], ours[1:], strict=True)]
    expected, found = stock[-1], ours[-1]
    hidden = (found.hidden - expected.hidden).abs().max() / expected.hidden.abs().max()
    gradients = (found.gradients - expected.gradients).norm() / expected.gradients.norm()
    return statistics.median(ratios), [f"{hidden:.0e}", f"{gradients:.0e}"]


def measure(name: str, prompt: int, completion: int, group: int, repeats: int) -> list[str]:
    """Lines of the table for one decoder."""
    decoder = make_decoder(name)
    own = 1000 + torch.arange(group * completion).view(group, completion)
    keys = torch.cat([torch.arange(prompt).expand(group, -1), own], dim=1)
    mask = torch.ones_like(keys, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(1, prompt, WIDTH, generator=generator).expand(group, -1, -1)
    tail = torch.randn(group, completion, WIDTH, generator=generator)
    embeddings = (torch.cat([head, tail], dim=1) * 0.1).requires_grad_()
    batch = {"inputs_embeds": embeddings, "attention_mask": mask.long(), "use_cache": False}
    layout = find_layout(keys, mask)
    ways = {
        "rows by themselves": {},
        "packed": {LAYOUT: layout},
    }
    steps: dict[str, list[Step]] = {way: [] for way in ways}
    for _ in range(repeats + 1):
        for way, argument in ways.items():
            steps[way].append(run(decoder, batch | argument, prompt))
    plain = steps.pop("rows by themselves")
    token_ratio = keys.numel() / layout.computed
    lines = []
    for way, turns in steps.items():
        ratio, differences = compared(plain, turns)
        cells = (
            f"{name}", way, f"{token_ratio:.2f}", f"{ratio:.2f}", f"{ratio / token_ratio:.2f}",
            f"{turns[-1].saved / plain[-1].saved:.2f}", *differences,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=DEFAULT)
    parser.add_argument("--prompt", type=int, default=466)
    parser.add_argument("--completion", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, torch {torch.__version__}, 1 thread; prompt {options.prompt}, ", end="")
    print(f"completion {options.completion}, group {options.group}, {options.repeats} turns\n")
    print("| decoder | way | token ratio | speed | of the ratio | activations | hidden | gradients |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.decoders:
        shape = (options.prompt, options.completion, options.group, options.repeats)
        print("\n".join(measure(name, *shape)), flush=True)


if __name__ == "__main__":
    main()
