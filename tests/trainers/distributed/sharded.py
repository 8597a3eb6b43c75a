"""Run by torchrun on two ranks: a policy sharded with FSDP2, on batches that differ as much as can be."""

import faulthandler
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

from hf_vlm_rl import AutoVLMPolicy
from tests.conformance.cases import no_image, one_image, tickets, two_images
from tests.trainers.distributed.launch import leave

LIMIT = 240

# Rank 0 has one row and no image; rank 1 has images of several shapes, and prompts that repeat.
ROWS = ([no_image()], [two_images(), one_image(), one_image()])


def loss_of(policy, batch):
    logits = policy(**batch, use_cache=False).logits
    return logits[:, -4:].log_softmax(-1)[..., ::7].mean()


def shard(policy):
    parts = [policy.get_submodule(path) for path in (*policy.family.vision, policy.family.language)]
    for part in parts:
        for name, module in part.named_modules():
            if name.rpartition(".")[2].isdigit() and "." in name and name.count(".") <= 2:
                fully_shard(module)
    fully_shard(policy)


def main(checkpoint, out, trained):
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32").eval()
    policy.base_model.sharing.mode = True
    if trained == "decoder":
        policy.freeze()
    batches = [tickets(policy.processing_class, rows) for rows in ROWS]
    expected = sum(loss_of(policy, batch) for batch in batches) / len(ROWS)
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    # A prompt of one token cannot be run ahead: its rank refuses what the other would wait for.
    token = batches[0]["input_ids"][:, -1:]
    prompts = [{"input_ids": token, "attention_mask": torch.ones_like(token)}, batches[1]]
    answers = [policy.generate(**batch, max_new_tokens=4, do_sample=False) for batch in batches]
    short = policy.generate(**prompts[0], max_new_tokens=4, do_sample=False)
    policy.zero_grad()

    shard(policy)
    loss = loss_of(policy, batches[rank])
    loss.backward()
    distributed.all_reduce(loss.detach_())
    torch.testing.assert_close(loss / len(ROWS), expected.detach(), atol=1e-6, rtol=0)
    largest = max(gradient.abs().max() for gradient in gradients.values())
    found = {name: p.grad.full_tensor() for name, p in policy.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        assert (found[name] - gradient).abs().max() < 1e-4 * max(gradient.abs().max(), 1e-2 * largest), name
    # The root's own weights, as trainers do it; the layers gather theirs one by one.
    policy.unshard()
    answer = policy.generate(**batches[rank], max_new_tokens=4, do_sample=False, synced_gpus=True)
    assert torch.equal(answer, answers[rank])
    answer = policy.generate(**prompts[rank], max_new_tokens=4, do_sample=False, synced_gpus=True)
    assert torch.equal(answer, [short, answers[1]][rank])
    with open(f"{out}/rank-{rank}", "w") as file:
        file.write(f"{len(gradients)} gradients")


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave()
