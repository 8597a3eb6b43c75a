"""Run by torchrun on two ranks: decoders whose rows must not share are found there, too.

`whole`: each rank has all weights, as under DDP. `spread`: FSDP2 spreads weights over ranks before any
comparison with stock could be made.
"""

import faulthandler
import os
import sys

import torch
from torch import distributed

from hf_vlm_rl import AutoVLMPolicy
from tests.conformance.cases import one_image, two_images
from tests.conformance.test_sharing import group, real
from tests.trainers.distributed.launch import leave
from tests.trainers.distributed.sharded import shard

LIMIT = 240


def log_probs(policy, batch):
    logits = policy(**batch, use_cache=False, logits_to_keep=8).logits
    return real(logits.log_softmax(-1), batch, 8)


def main(checkpoint, how):
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
    ranks = os.environ["WORLD_SIZE"]
    if how == "whole":
        distributed.init_process_group("gloo")
    else:
        del os.environ["WORLD_SIZE"]  # nothing says yet that there will be ranks
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32", sharing=True).eval()
    if how == "spread":
        os.environ["WORLD_SIZE"] = ranks
        distributed.init_process_group("gloo")
        shard(policy)
    batch = group(policy, [one_image(), two_images()], order=[3, 0, 4, 1, 5, 2])
    found = log_probs(policy, batch)
    policy.base_model.sharing.mode = False
    torch.testing.assert_close(found, log_probs(policy, batch), atol=1e-5, rtol=0)
    report = policy.sharing_report()
    reason = "was not compared with stock" if how == "spread" else "where rows share"
    assert report["tokens"] == 0
    assert any(reason in text for text in report["not_shared"]), report
    if how == "whole":
        policy.base_model.sharing.mode = True
        batch = group(policy, [one_image()], completions=2)
        names = ("input_ids", "attention_mask", "pixel_values", "image_grid_thw")
        prompt = {name: batch[name] for name in names} | {"max_new_tokens": 4, "do_sample": False}
        tokens = policy.generate(**prompt)
        policy.base_model.sharing.mode = False
        stock = policy.generate(**prompt)
        assert torch.equal(tokens, stock)


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave()
