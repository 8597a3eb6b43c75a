"""A stand-in for a vLLM server and TRL's client of it."""

import json
from types import SimpleNamespace
from typing import Any

from tests.vllm.fake import BIAS, FakeGeneration


class FakeServer(FakeGeneration):
    """TRL's `VLLMGeneration` in server mode; it is its own client, session and server.

    Attributes:
        processor_options: `--mm-processor-kwargs` of the server.
        answers_reset: The status with which it answers a request to drop what it knows of images.
    """

    processor_options: dict[str, Any] | None = None
    answers_reset = 200

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.llm.llm_engine.model_config.multimodal_config.mm_processor_kwargs = self.processor_options
        self.vllm_client = self.session = self
        self.base_url = "http://127.0.0.1:8000"

    def get_server_info(self):
        settings = {"mm_processor_kwargs": self.processor_options}
        return {"model_config": {"logprobs_mode": "processed_logprobs", "multimodal_config": settings}}

    def post(self, url):
        assert url == f"{self.base_url}/reset_encoder_cache"
        self.llm.reset_encoder_cache()
        return SimpleNamespace(status_code=self.answers_reset)

    def image_features(self, images):
        return [None if row is None else self._features(row) for row in images]

    def _features(self, images):
        places, offset = [], 3  # a conversation of nothing but images
        for replacement in self.replacements(images):
            places.append({"offset": offset, "length": len(replacement)})
            offset += len(replacement)
        return {"mm_placeholders": {"image": places}, "images": images}

    def sample(self, *arguments):
        """As the engine samples; a server returns as many log-probs as were asked for, the sampled first."""
        completion, *log_probs = super().sample(*arguments)
        most = self.generation_kwargs["logprobs"]
        return completion, *([values[:most] for values in part] for part in log_probs)

    def generate(self, prompts, features=None, n=1, generation_kwargs=None, **settings):
        assert self.llm.encoder_cache_is_fresh, "features of older weights"
        given = json.loads(json.dumps(generation_kwargs))
        assert {given["logit_bias"][str(token)] for token in self.placeholders} == {BIAS}
        assert given["logprobs"] == len(given["logprob_token_ids"])
        self.asked.append((prompts, features, n))
        features = [None] * len(prompts) if features is None else features
        rows = []
        for ids, of_prompt in zip(prompts, features, strict=True):
            self._check_places(ids, of_prompt)
            rows += [self.sample(ids, of_prompt and of_prompt["images"]) for _ in range(n)]
        names = ("completion_ids", "logprobs", "logprob_token_ids")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) | {"prompt_ids": prompts}

    def _check_places(self, ids, features):
        """Every placeholder belongs to a run of one image, and each run is one image's."""
        placeholder = self.processing_class.state.placeholder_id
        places = features["mm_placeholders"]["image"] if features else []
        covered = [at for place in places for at in range(place["offset"], place["offset"] + place["length"])]
        assert covered == [at for at, token in enumerate(ids) if token == placeholder]
