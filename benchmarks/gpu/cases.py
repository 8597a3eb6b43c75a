"""Batches on which a stock model and its policies are compared: values, gradients, greedy tokens."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchFeature

from hf_vlm_rl.families.tiny import auto_class
from hf_vlm_rl.families.tiny.weights import randomise
from tests.tiny import recipe

from ..models import picture, policy_of

GROUP, WORDS, GREEDY = 4, 9, 16


@dataclass(frozen=True)
class Run:
    """What a model made of a batch.

    Attributes:
        logps: (B, C) float32, of the completions; 0 where a row has no token.
        gradients: Of all parameters in one vector, float32, on the CPU.
    """

    logps: torch.Tensor
    gradients: torch.Tensor


def stock_model(family: str, attention: str, device: str) -> tuple[Any, Any]:
    """A tiny stock model whose images, words and positions all matter, and its native processor.

    Its weights are numbers of bfloat16 whatever it computes in, so that both dtypes have the same ones.

    Args:
        family: `config.model_type`.
        attention: `attn_implementation`.
        device: Where it goes.
    """
    made = recipe(family)
    auto = auto_class(made.config)
    model = auto.from_config(made.config, dtype=torch.float32, attn_implementation=attention)
    randomise(model, 0)
    made.processor.tokenizer.padding_side = "left"
    return model.to(torch.bfloat16).float().to(device).eval(), made.processor


def policies(model: Any, processor: Any) -> dict[str, Any]:
    """Policies with copies of the weights: one never shares, and one shares wherever it is exact."""
    made = {}
    for name in ("off", "on"):
        made[name] = policy_of(model, processor)
        made[name].base_model.sharing.mode = name == "on"
    return made


def prompts(processing: Any, device: str) -> BatchFeature:
    """Two prompts with different images and lengths, `GROUP` rows each, padded on the left."""
    conversations = [
        [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]
        for image, text in (
            (picture((224, 168), 1), "What is in this image?"),
            (picture((168, 224), 2), "Describe the second image in one sentence, please."),
        )
        for _ in range(GROUP)
    ]
    batch = processing.apply_chat_template(
        conversations,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    )
    batch.pop("labels", None)  # PaliGemma's processor always adds them
    return batch.to(device)


def with_completions(batch: BatchFeature) -> tuple[dict[str, Any], torch.Tensor]:
    """The batch with completions of 1 to `WORDS` tokens, and which of their (B, C) places are tokens."""
    rows = len(batch["input_ids"])
    device = batch["input_ids"].device
    draws = torch.Generator().manual_seed(1)
    ids = torch.randint(40, 200, (rows, WORDS), generator=draws).to(device)
    lengths = (torch.arange(rows, device=device) * 5 % WORDS) + 1
    real = torch.arange(WORDS, device=device) < lengths[:, None]
    grown = dict(batch)
    grown["input_ids"] = torch.cat([batch["input_ids"], torch.where(real, ids, 0)], dim=1)
    grown["attention_mask"] = torch.cat([batch["attention_mask"], real.long()], dim=1)
    for name in ("mm_token_type_ids", "token_type_ids"):  # TRL gives completions type 0 as well
        if name in batch:
            # Prompts of PaliGemma have type 0 alone, and its completions 1.
            kind = int(name == "token_type_ids" and not bool(batch[name].any()))
            grown[name] = torch.cat([batch[name], torch.full_like(ids, kind)], dim=1)
    return grown, real


def run(model: Any, processing: Any, device: str) -> Run:
    """Log-probs of the completions and the gradients of a weighted sum of them."""
    batch, real = with_completions(prompts(processing, device))
    model.zero_grad(set_to_none=True)
    logits = model(**batch, use_cache=False).logits[:, -WORDS - 1 : -1].float()
    ids = batch["input_ids"][:, -WORDS:]
    logps = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0] * real
    draws = torch.Generator().manual_seed(2)
    weights = torch.randn(real.shape, generator=draws).to(device)
    (logps * weights).sum().div(int(real.sum())).backward()
    gradients = [
        (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten().float().cpu()
        for weight in model.parameters()
    ]
    model.zero_grad(set_to_none=True)
    return Run(logps.detach(), torch.cat(gradients))


def greedy(model: Any, processing: Any, device: str) -> torch.Tensor:
    """(B, GREEDY) most probable tokens, image placeholders left out."""
    batch = prompts(processing, device)
    config = model.config
    barred = [config.image_token_id, getattr(config, "video_token_id", None)]
    tokens = model.generate(
        **batch,
        do_sample=False,
        min_new_tokens=GREEDY,
        max_new_tokens=GREEDY,
        suppress_tokens=[token for token in barred if token is not None],
        pad_token_id=0,
    )
    return tokens[:, -GREEDY:]


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """A copy in another dtype."""
    return copy.deepcopy(model).to(dtype)
