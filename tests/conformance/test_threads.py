"""Clause 17: two threads on one policy compute what each would alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hf_vlm_rl import AutoVLMPolicy

from .cases import ALL, one_image, tickets, two_images

ROUNDS = 6


@pytest.mark.parametrize("family", ALL)
def test_forwards_and_rollouts_of_two_threads_do_not_meet(family, policy_for):
    policy = policy_for(family).requires_grad_(False)
    policy.base_model.sharing.mode = True
    batches = [
        tickets(policy.processing_class, [row] * 3) for row in (one_image(), two_images(), one_image())
    ]

    def work(number):
        batch = batches[number % len(batches)]
        with torch.no_grad():
            if number % 2:
                return policy.generate(**batch, max_new_tokens=4, do_sample=False)
            return policy(**batch, use_cache=False).logits

    expected = [work(number) for number in range(2 * len(batches))]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(ROUNDS):
            for found, alone in zip(threads.map(work, range(len(expected))), expected, strict=True):
                torch.testing.assert_close(found, alone, atol=1e-6, rtol=0)


def test_the_first_use_may_be_from_two_threads(checkpoint, tmp_path):
    for _ in range(5):
        processing = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32").processing_class
        barrier = threading.Barrier(4)

        def encode(_, processing=processing, barrier=barrier):
            barrier.wait()
            return tickets(processing, [one_image()])["input_ids"].tolist()

        with ThreadPoolExecutor(4) as threads:
            first, *others = threads.map(encode, range(4))
        assert all(other == first for other in others)
