"""Run by torchrun on two ranks: weights are spread over both, whose images differ as much as can be.

WAY (zero3 or fsdp2) OUT CHECKPOINT...: how far each is from one process goes to OUT/rank-RANK.json,
by the checkpoint's name.
"""

import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"  # read when DeepSpeed is imported

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.errors import UnsupportedModelError
from tests.conformance.cases import tickets, user
from tests.images import photo
from tests.trainers.distributed.launch import leave

LIMIT = 120
# Every module gathers its weights each time it runs: DeepSpeed would keep the small ones of a tiny model.
ZERO3 = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


def batches(processing):
    """For each of two steps, the batches of both ranks: none and two images, one and two of other sizes."""
    none = [user("Say hello.")]
    one = [user("What is it?", photo("cat", (96, 96)))]
    two = [user("Compare them.", photo("coffee", (160, 64)), photo("rocket", (64, 320)))]
    return [[tickets(processing, rows) for rows in ranks] for ranks in ((none, two), (one, two))]


def loss_of(policy, batch):
    # Some tiny models never write the ids of images.
    logits = policy(**batch, use_cache=False).logits[:, -4:].clamp(min=-1e4)
    return logits.log_softmax(-1)[..., ::7].mean()


def weights(policy):
    return {name: weight.detach().clone() for name, weight in policy.named_parameters()}


def measure(checkpoint: str, way: Callable) -> dict[str, float]:
    """The largest differences from one process: of losses, and of gradients relative to the largest."""
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32").eval()
    steps = batches(policy.processing_class)
    expected = torch.stack([torch.stack([loss_of(policy, batch) for batch in ranks]) for ranks in steps])
    expected.mean().backward()
    named = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    gradients = {name: gradient.clone() for name, gradient in named.items()}
    policy.zero_grad()
    rank = distributed.get_rank()
    losses, spread = way(policy, [ranks[rank] for ranks in steps])
    apart = max(float((loss - ranks[rank]).abs()) for loss, ranks in zip(losses, expected, strict=True))
    largest = max(gradient.abs().max() for gradient in gradients.values())
    moved = max((spread[name] - gradient).abs().max() for name, gradient in gradients.items())
    return {"loss": apart, "gradient": float(moved / largest)}


def zero3(policy, steps):
    """The losses of this rank's steps, and the mean gradients, as an update of the weights shows them."""
    import deepspeed

    before = weights(policy)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=policy, optimizer=optimizer, config=ZERO3)
    losses = []
    for batch in steps:
        loss = loss_of(engine, batch)
        losses.append(loss.detach())
        engine.backward(loss)
        engine.step()
    with deepspeed.zero.GatheredParameters(list(policy.parameters())):
        after = weights(policy)
    return losses, {name: before[name] - after[name] for name in before}


def fsdp2(policy, steps):
    """The losses of this rank's steps, and the mean gradients, gathered.

    Layers are wrapped that accelerate wraps by default: those that transformers does not split.
    """
    for module in reversed([*policy.modules()]):
        if type(module).__name__ in policy._no_split_modules:
            fully_shard(module)
    fully_shard(policy)
    losses = []
    for batch in steps:
        loss = loss_of(policy, batch)
        losses.append(loss.detach())
        (loss / len(steps)).backward()
    spread = {}
    for name, weight in policy.named_parameters():
        if weight.grad is not None:
            gradient = weight.grad
            spread[name] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return losses, spread


def main(way, out, *checkpoints):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    measured = {}
    for checkpoint in checkpoints:
        faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
        try:
            measured[Path(checkpoint).name] = measure(checkpoint, {"zero3": zero3, "fsdp2": fsdp2}[way])
        except UnsupportedModelError as error:
            measured[Path(checkpoint).name] = str(error)
        except Exception:
            print(Path(checkpoint).name, file=sys.stderr)
            raise
    Path(f"{out}/rank-{distributed.get_rank()}.json").write_text(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave()
