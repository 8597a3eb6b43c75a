"""A trained adapter, served by vLLM as a LoRA module and merged, answers as the policy does."""

import gc

import pytest
import torch
from peft import get_peft_model
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.lora.request import LoRARequest

from hf_vlm_rl import AutoVLMPolicy, save_adapter
from tests.images import photo

pytestmark = pytest.mark.trl  # vLLM makes deprecated calls

SERVED = ("qwen2_5_vl", "qwen3_vl", "internvl", "idefics3")
CAT, CUP = photo("cat", (112, 112)), photo("coffee", (160, 64))
QUESTIONS = (("What is it?", [CAT]), ("Compare them.", [CUP, CAT]), ("Say hello to the user.", []))
TOKENS = 8


@pytest.fixture
def serve(own_port):
    """`serve(directory, adapter)`: greedy answers of vLLM to the questions."""

    def answers(directory, adapter=None):
        given = {"enable_lora": True, "max_lora_rank": 8} if adapter else {}
        engine = LLM(str(directory), dtype="float32", enforce_eager=True, max_model_len=1024, **given)
        processing = AutoVLMPolicy.from_pretrained(directory, dtype="float32").processing_class
        never = dict.fromkeys(processing.state.never_sampled, -100.0)  # as the policy itself
        sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, logit_bias=never)
        request = LoRARequest("tuned", 1, str(adapter)) if adapter else None
        conversations = [conversation(text, images) for text, images in QUESTIONS]
        outputs = engine.chat(conversations, sampling, lora_request=request, use_tqdm=False)
        # Not `text`, which leaves out half a letter at the end.
        ids = [list(output.outputs[0].token_ids) for output in outputs]
        return [text.strip() for text in processing.batch_decode(ids, skip_special_tokens=True)]

    yield answers
    cleanup_dist_env_and_memory()
    gc.collect()


def conversation(text: str, images: list) -> list[dict]:
    """A question as vLLM takes it."""
    pictures = [{"type": "image_pil", "image_pil": image} for image in images]
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": text}]}]


def chat(policy) -> list[str]:
    return [
        policy.chat([{"role": "user", "content": text}], images, max_new_tokens=TOKENS, do_sample=False)
        for text, images in QUESTIONS
    ]


@pytest.fixture
def tuned(served, tmp_path):
    """`tuned(family)`: a policy with a random adapter, and the directory of that adapter."""

    def make(family):
        policy = AutoVLMPolicy.from_pretrained(served(family), dtype="float32")
        torch.manual_seed(0)
        model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False))
        save_adapter(model, tmp_path / "adapter")
        return model, tmp_path / "adapter"

    return make


@pytest.mark.parametrize("family", SERVED)
def test_as_a_lora_module(family, tuned, serve, served):
    _, adapter = tuned(family)
    expected = chat(AutoVLMPolicy.from_pretrained(adapter, dtype="float32"))
    assert serve(served(family), adapter) == expected
    assert expected != chat(AutoVLMPolicy.from_pretrained(served(family), dtype="float32"))


@pytest.mark.parametrize("family", SERVED)
def test_merged(family, tuned, serve, tmp_path):
    model, adapter = tuned(family)
    expected = chat(AutoVLMPolicy.from_pretrained(adapter, dtype="float32"))
    merged = model.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    merged.processing_class.save_pretrained(tmp_path / "merged")
    assert serve(tmp_path / "merged") == expected
