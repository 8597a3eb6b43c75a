"""A policy, the stand-in for `vllm serve`, and a front between them."""

from contextlib import ExitStack

import pytest
import requests
from accelerate import Accelerator

from tests.front import asking
from tests.images import photo
from tests.vllm.fake import FakeGeneration
from tests.vllm.stand_in import StandIn, listening

SETTINGS = {
    "max_model_length": 512,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "max_completion_length": 4,
    "generation_kwargs": None,
}
CAT, CUP = photo("cat", (96, 96)), photo("coffee", (160, 64))


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server_of(opened):
    """`server_of(policy)`: the stand-in with the policy's weights, and its address."""

    def serve(policy, port=0):
        engine = FakeGeneration(policy, Accelerator(), policy.processing_class, **SETTINGS)
        engine.sync_weights()
        engine.llm.reset_encoder_cache()
        stand_in = StandIn(engine)
        return stand_in, opened.enter_context(listening(stand_in, port))

    return serve


@pytest.fixture
def encode():
    """`encode(policy, text, *images)`: ids with tickets, as trainers send them."""
    return asking.encode


@pytest.fixture
def complete():
    """`complete(url, prompts, **body)`: the answer of `/v1/completions`, asked as TRL's client asks."""

    def ask(url, prompt, **body):
        asked = {"model": "tiny", "prompt": prompt, "temperature": 1.0, "max_tokens": 4, "logprobs": 0}
        asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True} | body
        return requests.post(f"{url}/v1/completions", json=asked)

    return ask
