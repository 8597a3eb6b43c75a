"""TRL's `VLLMGeneration` in server mode, with the stand-in for `vllm serve` behind it."""

from contextlib import ExitStack
from typing import Any, ClassVar

import requests

from tests.vllm.fake import FakeGeneration
from tests.vllm.stand_in import StandIn, client_of, listening


class FakeServer(FakeGeneration):
    """TRL's class with a server of its own, which ends with `close`.

    Attributes:
        processor_options: `--mm-processor-kwargs` of the server.
        statuses: What the server answers to requests of a path, if not 200.
    """

    processor_options: dict[str, Any] | None = None
    statuses: ClassVar[dict[str, int]] = {}

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.llm.llm_engine.model_config.multimodal_config.mm_processor_kwargs = self.processor_options
        self.server = StandIn(self)
        self.server.statuses = self.statuses
        self.open = ExitStack()
        self.vllm_client = client_of(self.open.enter_context(listening(self.server)))
        self.vllm_client.get_server_info = self.server_info

    def server_info(self):
        return {
            "model_config": {
                "dtype": str(self.llm.llm_engine.model_config.dtype),
                "logprobs_mode": "processed_logprobs",
                "multimodal_config": {"mm_processor_kwargs": self.processor_options},
            }
        }

    def close(self):
        self.open.close()


class FakeClient(FakeServer):
    """TRL's class in server mode as it is: it sends ids to `/v1/completions` of the trainer's address."""

    def __init__(self, *arguments, server_base_url=None, **settings):
        super().__init__(*arguments, **settings)
        self.url = server_base_url

    def sync_weights(self):
        super().sync_weights()
        for path in (
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/reset_prefix_cache",
        ):
            assert requests.post(f"{self.url}{path}", json={}).status_code == 200

    def generate(self, prompts, images, num_generations, profiler=None):
        assert images is None
        asked = {"model": "tiny", "prompt": prompts[::num_generations], "n": num_generations}
        asked |= {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "logprobs": 0}
        asked |= {"max_tokens": self.max_completion_length, "repetition_penalty": self.repetition_penalty}
        asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
        answer = requests.post(f"{self.url}/v1/completions", json=asked)
        if answer.status_code != 200:
            raise RuntimeError(f"Request failed: {answer.status_code}, {answer.text}")
        choices = answer.json()["choices"]
        log_probs = [[[value] for value in choice["logprobs"]["token_logprobs"]] for choice in choices]
        tokens = [[[token] for token in choice["token_ids"]] for choice in choices]
        return prompts, [choice["token_ids"] for choice in choices], log_probs, tokens
