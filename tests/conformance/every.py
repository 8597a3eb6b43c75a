"""What the clauses over all classes have in common: the policy, its stock twin and their batches."""

import copy
import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import AutoConfig, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import auto_class
from tests.images import photo
from tests.tiny import EVERY, WITHOUT_POLICY

from .cases import native, tickets, user

NEWEST = Version(transformers.__version__) >= Version("5.24")

# Newer classes whose trainers run on every TRL lane: experts, hybrids, their own positions and masks.
NEWER = (
    "qwen3_5_moe",
    "qwen3_vl_moe",
    "gemma4",
    "glm4v_moe",
    "kimi_k25",
    "llama4",
    "lfm2_vl",
    "minicpmv4_7",
    "molmo2",
    "ernie4_5_vl_moe",
)

# In these, stock's own numbers depend on padding or on a row's place in the batch.
STOCK_DIFFERS = {
    "emu3": "images are padded to the largest of the batch",
    "mllama": "rows are padded to the most images of the batch, and none may be without",
    "phi4_multimodal": "images are padded to the most tiles of the batch",
    "hunyuan_vl": "a row's logits depend on its place in the batch: rotary positions are read across rows",
    "mistral_large4": "left padding changes the logits of a row",
}

# A ticket does not fit into the tokens of an image: no encode_prompt, so no PPO.
NO_ROOM_FOR_TICKETS = {"mllama": "an image is one token"}

# Of these, the native processor takes no text-only row beside one with images.
TEXT_APART = {"mllama": "its masks count on an image in every row"}

# In these, stock's own backward pass fails while the vision tower is trained.
STOCK_FAILS_BACKWARD = {"gemma3n": "its tower's activations are changed in place"}

# transformers 5.23 renames tensors of these when PEFT loads an adapter, on the stock model as well.
LOST_ADAPTERS = ("deepseek_ocr2", "inkling2", "mistral_large4", "unlimited_ocr")

# Stock trainers ask models with experts for a router loss, which these cannot compute in transformers 5.23:
# the output has no aux_loss, or the config no num_experts.
WITHOUT_ROUTER_LOSS = (
    "deepseek_ocr2",
    "dots3_note",
    "glm4v_moe",
    "glm5_next",
    "kimi_k25",
    "llama4",
    "mistral_large4",
    "muse_spark",
    "nemotron_h_omni",
    "step3p7",
    "unlimited_ocr",
)

# Those that take videos; in the others, stock takes none or fails on a tiny clip, or differs.
VIDEO_CLASSES = (
    # Before transformers 5.24, the self-check finds that its videos are not stock's.
    *(("kimi_k25",) if NEWEST else ()),
    "internvl",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "llava_onevision",
    "smolvlm",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen4_exp",
    "qwen3_vl_moe",
    "cosmos3_omni",
    "cosmos3_edge",
    "cohere_compass",
    "exaone4_5",
    "hyperclovax_vision_v2",
    "lfm3_vl",
    "video_llama_3",
    "ernie4_5_vl_moe",
    "minimax_m3_vl",
    "qwen2_5_omni_thinker",
    "glm4v",
    "glm46v",
    "glm4v_moe",
    "glm_ocr",
    "glmga",
    "gemma4",
    "gemma4_unified",
    "llava_next_video",
    "muse_glimmer",
    "video_llava",
    "molmo2",
    "muse_spark",
)

CLAIMED = tuple(name for name in EVERY if name not in WITHOUT_POLICY)


@dataclass(frozen=True)
class Twins:
    """A policy from a saved checkpoint, and the stock model and processor of the same files."""

    policy: Any
    bare: Any
    processor: Any

    @property
    def processing(self) -> Any:
        return self.policy.processing_class

    def tickets(self, rows: list) -> dict:
        """Rows as the policy gets them."""
        return tickets(self.processing, rows)

    def native(self, rows: list) -> dict:
        """Rows as the stock model gets them."""
        # Cosmos3-Edge's processor makes what its model needs on request only.
        typed = "mm_token_type_ids" in self.policy.family.token_types
        batch = native(self.processor, rows, typed=typed)
        # Llama 4's processor makes bfloat16, whatever its model is.
        return batch.to(self.bare.dtype)

    def rows(self, *rows: list) -> list[list]:
        """Those of the rows that the native processor takes beside each other."""
        family = self.policy.family
        with_images = family.needs_image or family.model_type in TEXT_APART
        return [row for row in rows if not with_images or has_image(row)]


def has_image(messages: list[dict]) -> bool:
    return any("image" in block for message in messages for block in message["content"])


@functools.lru_cache(maxsize=2)  # all clauses of a class follow each other
def load_twins(directory: str) -> Twins:
    policy = AutoVLMPolicy.from_pretrained(directory, dtype="float32").eval()
    bare = auto_class(AutoConfig.from_pretrained(directory)).from_pretrained(directory, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(directory, padding_side="left")
    processor.chat_template = processor.chat_template or processor.tokenizer.chat_template
    return Twins(policy, bare.eval(), processor)


@pytest.fixture
def twins(model_type, checkpoint) -> Twins:
    """Fresh twins of `model_type`, in eval mode."""
    loaded = load_twins(str(checkpoint(model_type)))
    return Twins(copy.deepcopy(loaded.policy), copy.deepcopy(loaded.bare), loaded.processor)


def one(name: str = "astronaut", text: str = "What is this?") -> list[dict]:
    return user(text, photo(name, (224, 224)))


def two() -> list[dict]:
    wide, tall = photo("coffee", (224, 140)), photo("cat", (140, 224))
    return user("Compare the first picture with the second one, please.", wide, tall)


def none() -> list[dict]:
    return user("Say hello to me.")


def logits(model: Any, batch: dict) -> torch.Tensor:
    """(tokens, V) of the tokens that are no padding."""
    with torch.no_grad():
        return model(**batch).logits[batch["attention_mask"].bool()]
