"""What `AutoModelForCausalLM` loads after `register()`, which is for a whole process: run in another one."""

import json

import pytest

from tests.loading.internvl_chat.golden import QWEN2, directory
from tests.loading.test_auto import run_python

CODE = """
import json, sys
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from hf_vlm_rl import VLMPolicy, register

def for_tries(module, query, key, value, attention_mask, *, tree_kv_index, **others):
    raise AssertionError

AttentionInterface.register("tree_of_tomorrow", for_tries)
AttentionMaskInterface.register("tree_of_tomorrow", lambda **_: None)
register()
found = []
for asked in json.loads(sys.argv[2]):
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation=asked, dtype="float32")
    config = model.config
    parts = [config, config.get_text_config(), config.vision_config]
    found.append([isinstance(model, VLMPolicy), *(part._attn_implementation for part in parts)])
print("FOUND " + json.dumps(found))
"""
ASKED = ["eager", None, "tree_of_tomorrow"]
PARTS = {"text_config": "eager", "vision_config": "sdpa"}


def loaded(source, asked: list) -> list:
    output = run_python(CODE, source, json.dumps(asked)).stdout
    return json.loads(next(line for line in output.splitlines() if line.startswith("FOUND "))[6:])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "internvl_chat"])
def test_attention_is_what_was_asked_for_and_never_that_of_tries(family, checkpoint):
    source = directory(QWEN2) if family == "internvl_chat" else checkpoint(family)
    own = [[True, "eager", "eager", "eager"], *[[True, "sdpa", "sdpa", "sdpa"]] * 2]
    assert loaded(source, ASKED) == own


def test_attention_of_the_parts(checkpoint):
    assert loaded(checkpoint("qwen2_5_vl"), [PARTS]) == [[True, "sdpa", "eager", "sdpa"]]


TRL = """
import sys
from trl.trainer.utils import create_model_from_path
from hf_vlm_rl import VLMPolicy, register
register()
options = {"device_map": None, "attn_implementation": "eager", "dtype": "float32", "trust_remote_code": False}
model = create_model_from_path(sys.argv[1], **options)
print("FOUND", isinstance(model, VLMPolicy), model.config._attn_implementation)
"""


@pytest.mark.trl
def test_trls_way_to_load_an_id_gives_a_policy(checkpoint):
    assert "FOUND True eager" in run_python(TRL, checkpoint("internvl")).stdout
