"""A stand-in for TRL's `VLLMGeneration`: expands images as vLLM does, checks what it is asked, and samples.

It expands with the native processor of the checkpoint, as vLLM would, and samples with the policy's weights
of the last synchronization.
"""

import copy
import math
from types import SimpleNamespace
from typing import Any

import PIL.Image
import torch
from peft import PeftModel
from transformers import AutoProcessor

from hf_vlm_rl.processing.ids.tokenizer import IdsTokenizer

BIAS = -100.0


class Engine:
    """vLLM's `LLM`, as far as TRL and this package touch it."""

    def __init__(self, model: Any, longest: int):
        self.encoder_cache_is_fresh = False
        self.prompts = []
        self.llm_engine = SimpleNamespace(
            model_config=SimpleNamespace(
                dtype=model.dtype,
                max_model_len=longest,
                hf_config=SimpleNamespace(model_type=model.config.model_type),
                multimodal_config=SimpleNamespace(mm_processor_kwargs=None),
            ),
            reset_encoder_cache=self.reset_encoder_cache,
        )

    def reset_encoder_cache(self):
        self.encoder_cache_is_fresh = True

    def reset_prefix_cache(self):
        """It keeps the features of images."""

    def take_weights(self):
        """What it knows of images was made with others."""
        self.encoder_cache_is_fresh = False

    def generate(self, prompts, sampling_params=None, use_tqdm=False):
        """Take prompts as vLLM does; the stand-in for TRL's class answers them."""
        self.prompts = prompts


def _vllm_prompt(ids: list[int], images: list | None) -> dict[str, Any]:
    """A prompt as TRL gives it to vLLM."""
    if not images:
        return {"prompt_token_ids": ids}
    return {"prompt_token_ids": ids, "multi_modal_data": {"image": images if len(images) > 1 else images[0]}}


class FakeGeneration:
    """TRL's class in colocate mode."""

    def __init__(self, model, accelerator, processing_class, mode="colocate", **settings):
        self.model, self.mode = model, mode
        ids_alone = isinstance(processing_class, IdsTokenizer)
        self.processing_class = processing_class.processing_class if ids_alone else processing_class
        self.max_model_length = settings["max_model_length"]
        self.temperature, self.top_p = settings["temperature"], settings["top_p"]
        self.top_k, self.min_p = settings["top_k"], settings["min_p"]
        self.repetition_penalty = settings["repetition_penalty"]
        self.max_completion_length = settings["max_completion_length"]
        self.logprobs, self.generation_kwargs = 0, settings["generation_kwargs"] or {}
        self.structured_outputs_regex = None
        self.llm = Engine(model, self.max_model_length or 4096)
        self.placeholders = self.processing_class.state.never_sampled
        self.synchronized, self.asked = 0, []

    def sync_weights(self):
        self.synchronized += 1
        self.llm.take_weights()
        model = self.model
        if isinstance(model, PeftModel):
            model = copy.deepcopy(model).merge_and_unload()
        self.weights = copy.deepcopy(model).eval()
        for module in self.weights.modules():
            vars(module).pop("forward", None)  # a wrapper of a trainer's, around the forward of the original

    def generate(self, prompts, images, num_generations, profiler=None):
        assert self.llm.encoder_cache_is_fresh, "features of older weights"
        arguments = self.generation_kwargs
        assert all(type(token) is int for token in arguments["logit_bias"])
        assert {arguments["logit_bias"][token] for token in self.placeholders} == {BIAS}
        assert set(self.placeholders) <= set(arguments["logprob_token_ids"])
        assert arguments["logprobs"] == len(arguments["logprob_token_ids"])
        images = [None] * len(prompts) if images is None else images
        self.asked.append((prompts, images, arguments))
        self.llm.generate([_vllm_prompt(ids, row) for ids, row in zip(prompts, images, strict=True)])
        options = [prompt.get("mm_processor_kwargs", {}) for prompt in self.llm.prompts]
        rows = [self._answer(*row) for row in zip(prompts, images, options, strict=True)]
        return tuple(list(part) for part in zip(*rows, strict=True))

    def expanded(self, ids: list[int], images: list | None, options: dict | None = None) -> list[int]:
        """What vLLM makes of a prompt: each placeholder replaced as the native processor does."""
        text = self.processing_class.state.placeholder
        mark = self.processing_class.tokenizer.convert_tokens_to_ids(text)
        assert ids.count(mark) == len(images or ()), "one placeholder for each image"
        replacements, out = self.replacements(images or [], options), []
        for token in ids:
            out.extend(replacements.pop(0) if token == mark else [token])
        return out

    def replacements(self, images: list, of_prompt: dict | None = None) -> list[list[int]]:
        """What vLLM puts in the place of each image's placeholder."""
        assert all(isinstance(image, PIL.Image.Image) and image.mode == "RGB" for image in images)
        options = self.llm.llm_engine.model_config.multimodal_config.mm_processor_kwargs or {}
        native = AutoProcessor.from_pretrained(self.model.name_or_path, **options)
        text, out = self.processing_class.state.placeholder, []
        for image in images:
            # In company, some processors make other tokens of an image than of one alone.
            given = {"images": [[image] * len(images)], "text": [text * len(images)]}
            call = native(**given, add_special_tokens=False, images_kwargs=of_prompt or {})
            made = [int(each) for each in call["input_ids"][0]]
            out.append(made[: len(made) // len(images)])
        return out

    def _answer(self, ids: list[int], images: list | None, options: dict) -> tuple:
        seen = self.expanded(ids, images, options)
        return seen, *self.sample(seen, images, options)

    def sample(self, seen: list[int], images: list | None, options: dict | None = None) -> tuple:
        """A completion of an expanded prompt, log-probs of each token, and whose they are."""
        tickets = {}
        if images:
            text = self.processing_class.state.placeholder * len(images)
            call = {"images": [images], "text": [text], "images_kwargs": options or {}}
            encoded = self.processing_class(**call, return_tensors="pt")
            tickets = {key: encoded[key] for key in ("pixel_values", "image_grid_thw")}
        prompt = torch.tensor([seen])
        with torch.no_grad():
            output = self.weights.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                **tickets,
                max_new_tokens=self.max_completion_length,
                do_sample=True,
                temperature=self.temperature,
                top_k=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        completion = output.sequences[0, len(seen) :].tolist()
        logprobs, tokens = [], []
        for token, logits in zip(completion, output.logits, strict=True):
            biased = logits[0].double().clone()
            for each, bias in self.generation_kwargs["logit_bias"].items():
                biased[each] += bias
            values = (biased / self.temperature).log_softmax(-1)
            names = list(dict.fromkeys([token, *self.generation_kwargs["logprob_token_ids"]]))
            tokens.append(names)
            logprobs.append([float(values[each]) for each in names])
        assert all(math.isfinite(value) for each in logprobs for value in each)
        return completion, logprobs, tokens


class Parameters(SimpleNamespace):
    """vLLM's `SamplingParams`."""

    def clone(self):
        return Parameters(**vars(self))


class FakeColocate(FakeGeneration):
    """TRL's class in colocate mode as it is: it hands the engine ids, and reads the engine's answers."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.llm.generate = self.answer
        self.requests = []

    def sync_weights(self):
        super().sync_weights()
        self.llm.reset_prefix_cache()

    def generate(self, prompts, images, num_generations, profiler=None):
        assert images is None
        asked = {"temperature": self.temperature, "max_tokens": self.max_completion_length, "logprobs": 0}
        asked |= {"logit_bias": None, "logprob_token_ids": None} | self.generation_kwargs
        given = [{"prompt_token_ids": list(ids)} for ids in prompts]
        answers = self.llm.generate(given, sampling_params=Parameters(**asked), use_tqdm=False)
        completions = [answer.outputs[0] for answer in answers]
        tokens = [[list(position) for position in each.logprobs] for each in completions]
        values = [
            [[entry.logprob for entry in position.values()] for position in each.logprobs]
            for each in completions
        ]
        seen = [answer.prompt_token_ids for answer in answers]
        return seen, [each.token_ids for each in completions], values, tokens

    def answer(self, prompts, sampling_params, use_tqdm):
        """What vLLM's `LLM.generate` answers."""
        assert self.llm.encoder_cache_is_fresh, "features of older weights"
        assert {sampling_params.logit_bias[token] for token in self.placeholders} == {BIAS}
        assert sampling_params.logprobs == len(sampling_params.logprob_token_ids)
        self.requests += prompts
        kept = self.generation_kwargs, self.max_completion_length
        self.generation_kwargs = vars(sampling_params)
        self.max_completion_length = sampling_params.max_tokens
        answers = [self._output(prompt) for prompt in prompts]
        self.generation_kwargs, self.max_completion_length = kept
        return answers

    def _output(self, prompt):
        images = prompt.get("multi_modal_data", {}).get("image")
        seen = self.expanded(prompt["prompt_token_ids"], images)
        token_ids, values, tokens = self.sample(seen, images)
        positions = [
            {token: SimpleNamespace(logprob=value) for token, value in zip(*row, strict=True)}
            for row in zip(tokens, values, strict=True)
        ]
        completion = SimpleNamespace(token_ids=token_ids, logprobs=positions)
        return SimpleNamespace(prompt_token_ids=seen, outputs=[completion])
