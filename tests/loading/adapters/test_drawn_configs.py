"""Drawn adapter_config.json files are read as they are written, or refused in words."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig

from hf_vlm_rl import CheckpointError, UnsupportedModelError
from hf_vlm_rl.loading.adapters.config import ABOUT, IGNORED, load_config

pytestmark = pytest.mark.slow

PLAIN = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
NAMES = sorted({*LoraConfig.__dataclass_fields__, "auto_map", "trust_remote_code", "megatron_config", "new"})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["all", "q_proj", "pissa", "loftq", "CAUSAL_LM", "SEQ_CLS", "LORA", "/etc/passwd", "(a+)+$"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*NAMES, "q_proj", "(", "0"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@settings(max_examples=3000, deadline=None)
@given(drawn=st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=3))
def test_it_is_read_as_written_or_refused(drawn, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "drawn"
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(PLAIN | drawn))
    try:
        config = load_config(folder, "drawn")
    except (CheckpointError, UnsupportedModelError) as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert 20 < len(refusal) < 1500
        return
    assert isinstance(config, LoraConfig)
    assert config.r >= 1
    assert math.isfinite(config.lora_alpha)
    assert 0 <= config.lora_dropout <= 1
    for name, value in drawn.items():
        if name not in IGNORED and value:
            found = getattr(config, name)
            if name == "auto_mapping":  # notes of others are left out
                value = {key: value[key] for key in ABOUT if key in value}
            assert found == (set(value) if isinstance(found, set) else value), name
