"""A step of stock GRPO on the meta device: what its forward and backward, and its rollout, allocate."""

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils._pytree import tree_leaves

from ..compat import CACHE
from ..policy.caches.known_caches import keeps_all_keys
from ..policy.generate.prefill import reads_forwards
from .dry import Kernels, dry_run
from .settings import Run
from .weights import policy_of

# TRL computes entropies for so many tokens at once.
ENTROPY_CHUNK = 128


@dataclass(frozen=True)
class Prompt:
    """A prompt as a trainer passes it, one row.

    `inputs` are ids and mask of shape (1, T) and tickets of N images, as the processing class gives them.
    `words` are ids of ordinary tokens, all different.
    """

    inputs: Mapping[str, torch.Tensor]
    image_tokens: int
    words: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Length of the prompt."""
        return self.inputs["input_ids"].shape[1]

    def rows(self, count: int, completion: int) -> dict[str, torch.Tensor]:
        """`count` rows with different completions of `completion` tokens, one of them a token shorter.

        Rows of different lengths are the rule, and have a mask.
        """
        rows = {key: value.repeat(count, 1) for key, value in self.inputs.items()}
        words = torch.tensor([self.words[row % len(self.words)] for row in range(count)])
        completions = words[:, None].expand(count, completion)
        rows["input_ids"] = torch.cat([rows["input_ids"], completions], dim=1)
        rows["attention_mask"] = F.pad(rows["attention_mask"], (0, completion), value=1)
        if completion > 1 and count > 1:
            rows["attention_mask"][-1, -1] = 0
        return rows


def make_prompt(processing: Any, run: Run) -> Prompt:
    """The prompt of a run, as the checkpoint's own processor makes it of blank images."""
    content: list[dict[str, Any]] = [
        # Of different colours: equal images would be one image.
        {"type": "image", "image": Image.new("RGB", run.image, (number % 256, number // 256, 0))}
        for number in range(run.images)
    ]
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": "a"}]}]
    batch = processing.apply_chat_template(
        [messages], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    placeholders = int((inputs["input_ids"] == processing.state.placeholder_id).sum())
    tokenizer = processing.tokenizer
    reserved = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *processing.state.never_sampled}
    words = tuple(itertools.islice((i for i in range(len(tokenizer)) if i not in reserved), 256))
    prompt = Prompt(inputs, placeholders, words)
    return Prompt(prompt.rows(1, run.text), placeholders, words) if run.text else prompt


def update_bytes(model: Any, kernels: Kernels, rows: Mapping[str, Any], completion: int) -> int:
    """Peak of a forward and backward over what was held before, gradients included.

    The model is a policy on the meta device, as it is trained. `rows` are a micro-batch, with `completion`
    tokens.
    """
    inputs = dict(rows, use_cache=False)
    base = policy_of(model)
    if "logits_to_keep" in inspect.signature(base.forward).parameters:
        inputs["logits_to_keep"] = completion + 1
    with dry_run(kernels) as live:
        output = model(**inputs)
        output.logits = output.logits.float()  # as Accelerate does in mixed precision
        loss = _log_probs(output.logits, rows["input_ids"][:, -completion:]).sum()
        del output  # before backward, as where TRL's function returns
        torch.autograd.backward(loss)
    model.zero_grad()
    return live.peak


def _log_probs(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of `ids`, (B, C), with the copies of float32 `logits` that TRL's GRPO makes."""
    logits = logits[:, :-1, :][:, -ids.shape[1] :, :] / 1.0
    sums = torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    chosen = torch.gather(logits, -1, ids.unsqueeze(-1)).squeeze(-1) - sums
    with torch.no_grad():
        for chunk in logits.flatten(0, 1).split(ENTROPY_CHUNK):
            log_probs = chunk.log_softmax(-1)
            (log_probs.exp() * log_probs).sum(-1)
    return chosen


@dataclass(frozen=True)
class Rollout:
    """Bytes of a rollout: the most at a time, and keys and values at its end.

    `cache` holds each distinct prompt once; `stock` is what the stock model holds.
    """

    cache: int
    stock: int
    peak: int


@torch.no_grad()
def rollout_bytes(policy: Any, prompt: Prompt, prompts: int, rows: int, completion: int) -> Rollout:
    """What `generate` holds.

    The policy is on the meta device, without gradient checkpointing. Each of `prompts` distinct prompts is
    continued by as many rows, of `rows` in all, with `completion` tokens.
    """
    backbone = policy.base_model
    once = (
        backbone.sharing.mode is not False and backbone.sharing.refusal is None and reads_forwards(backbone)
    )
    at_once = prompts if once else rows
    stock = rows * _cache_bytes(policy, prompt.tokens + completion)
    cache = stock
    if once and keeps_all_keys(policy.base_model.decoder.config):
        cache = prompts * _cache_bytes(policy, prompt.tokens) + rows * _cache_bytes(policy, completion)
    with dry_run(Kernels(None)) as live:
        policy.base_model(**prompt.rows(at_once, 0), use_cache=True)
    layers = policy.get_submodule(policy.family.language).config.num_hidden_layers
    # A token on: logits and probabilities in float32, and a layer's cache next to its longer self.
    vocabulary = policy.get_output_embeddings().weight.shape[0]
    growing = 2 * 4 * rows * vocabulary + cache // layers
    return Rollout(cache, stock, max(live.peak, cache + growing))


def _cache_bytes(policy: Any, tokens: int) -> int:
    """Bytes of the keys and values of one row, and of the states that hybrid decoders keep in their place."""
    decoder = policy.get_submodule(policy.family.language)
    with dry_run(Kernels(None)):
        embeddings = torch.empty(1, tokens, decoder.config.hidden_size, dtype=decoder.dtype, device="meta")
        cache = decoder(inputs_embeds=embeddings, use_cache=True)[CACHE]
    held = (leaf for layer in cache.layers for leaf in tree_leaves(vars(layer)))
    return sum(leaf.nbytes for leaf in held if isinstance(leaf, torch.Tensor))
