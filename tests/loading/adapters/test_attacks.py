"""An adapter_config.json that somebody else wrote imports nothing, allocates nothing and takes no time."""

import json
import shutil
import sys
import time

import pytest

from hf_vlm_rl import AutoVLMPolicy, CheckpointError, UnsupportedModelError

from .test_reload import edit, load

SLOW = r"(?:(.)|(..)|(...))+(?(1)a|b)c?[^a-z]"  # exponential in the length of a name


@pytest.fixture
def own_adapter(adapter_of, tmp_path):
    """A copy of the InternVL adapter, to attack with."""
    return shutil.copytree(adapter_of("internvl"), tmp_path / "adapter")


def test_a_config_imports_nothing_from_the_working_directory(own_adapter, tmp_path, monkeypatch):
    package = tmp_path / "megatron"
    package.mkdir()
    (package / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    (package / "core.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    edit(own_adapter, megatron_config={"a": 1}, megatron_core="megatron.core")
    with pytest.raises(CheckpointError, match=r"megatron_config is .*No such field"):
        load(own_adapter)
    assert not (tmp_path / "ran").exists()
    assert "megatron" not in sys.modules


REFUSED = {
    "r": [0, -1, 1.5, "4", True, 10**9, 32],  # 32: fewer than the outputs of a layer
    "lora_alpha": [float("nan"), float("inf"), 1e300, "8", [8]],
    "lora_dropout": [-0.1, 1.5, float("nan"), "0"],
    "bias": ["some", 1, ["none"]],
    "rank_pattern": [{"q_proj": 0}, {"q_proj": 10**9}, {"q_proj": "4"}, [4], {"q_proj": float("nan")}],
    "alpha_pattern": [{"q_proj": float("inf")}, {"q_proj": "1"}, 3],
    "init_lora_weights": ["pissa_niter_1000000000", "loftq", "corda", "lora_ga", 3, ["pissa"], {"a": 1}],
    "modules_to_save": [[SLOW], "lm_head", [["a"]], ["a" * 501]],
    "target_modules": [[SLOW], [1], {"a": 1}, ["q_proj"] * 20_001, "q" * 10_001],
    "layers_pattern": [SLOW, [SLOW]],
    "layers_to_transform": [-1, ["1"], 1.5],
    "layer_replication": [[[0, 1000000]]],
    "trainable_token_indices": [[-1], {"embed_tokens": ["a"]}],
    "alora_invocation_tokens": [[1]],
    "loftq_config": [{"loftq_bits": 4}],
    "corda_config": [{"cache_file": "/etc/passwd"}],
    "auto_mapping": [
        {"base_model_class": 1},
        {"base_weights": {"a": ["x"]}},
        [1],
        {"stages": [1]},
    ],
    "use_dora": ["yes", 1],
    "something_new": [{"a": 1}, True, "x"],
}
CASES = [(field, value) for field, values in REFUSED.items() for value in values if value is not None]


@pytest.mark.parametrize(("field", "value"), CASES, ids=[f"{f}-{str(v)[:30]}" for f, v in CASES])
def test_fields_of_other_types_and_ranges_are_refused(field, value, own_adapter):
    edit(own_adapter, **{field: value})
    start = time.monotonic()
    with pytest.raises(CheckpointError, match=rf"adapter_config.json.*({field}|NaN|Infinity|rank)") as caught:
        load(own_adapter)
    assert len(str(caught.value)) < 1500
    assert time.monotonic() - start < 60  # a hang is what is tested


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"peft_type": ["LORA"]}', '{"peft_type": "LORA", "r": ' + "9" * 5000 + "}"]
)
def test_a_config_that_is_no_config_is_refused(content, own_adapter):
    (own_adapter / "adapter_config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
        load(own_adapter)


def test_notes_that_others_write_beside_peft_s_are_left_alone(own_adapter):
    about = json.loads((own_adapter / "adapter_config.json").read_text())["auto_mapping"]
    edit(own_adapter, auto_mapping=about | {"unsloth_fixed": True, "new": {"a": SLOW}})
    assert load(own_adapter).peft_config["default"].auto_mapping == about


@pytest.mark.slow
@pytest.mark.parametrize("field", ["target_modules", "exclude_modules", "rank_pattern", "alpha_pattern"])
def test_a_pattern_that_does_not_end_is_refused(field, own_adapter):
    edit(own_adapter, **{field: {SLOW: 2} if field.endswith("_pattern") else SLOW})
    with pytest.raises(CheckpointError, match=rf"{field} has .*takes more than 5 s"):
        load(own_adapter)


@pytest.mark.parametrize("pattern", ["(", "nothing_of_this_name", r".*\.(gate|"])
def test_a_pattern_that_is_none_or_matches_nothing_is_refused(pattern, own_adapter):
    edit(own_adapter, target_modules=pattern)
    with pytest.raises(CheckpointError, match=r"do not fit: .*(is no pattern|are not in the base)"):
        load(own_adapter)


def test_patterns_mean_what_peft_takes_them_for(policy_for, tmp_path):
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    from .models import logits

    config = LoraConfig(
        r=4,
        target_modules=r".*language_model.*\.(q_proj|v_proj|up_proj)",
        exclude_modules=r".*layers\.0\.mlp.*",
        rank_pattern={r"layers\.[1-9].*": 2, r"layers\.0.*q_proj": 3},
        alpha_pattern={"^.*v_proj": 32},
        init_lora_weights=False,
    )
    policy = policy_for("internvl")
    torch.manual_seed(0)
    get_peft_model(policy, config).save_pretrained(tmp_path)
    own = load(tmp_path)
    stock = PeftModel.from_pretrained(
        AutoVLMPolicy.from_pretrained(policy.name_or_path, dtype="float32"), tmp_path
    )
    processing = own.processing_class
    assert torch.equal(logits(own, processing), logits(stock, processing))


def test_a_base_with_an_adapter_of_its_own_is_refused(own_adapter, checkpoint, tmp_path):
    """transformers would load that adapter, with everything its config says."""
    base = shutil.copytree(checkpoint("internvl"), tmp_path / "base")
    shutil.copy(own_adapter / "adapter_config.json", base)
    config = json.loads((base / "adapter_config.json").read_text()) | {"megatron_config": {"a": 1}}
    (base / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"base.* has an adapter_config\.json itself"):
        load(own_adapter, base_model=base)


@pytest.mark.parametrize("kind", ["PREFIX_TUNING", "VERA", "ADALORA"])
def test_kinds_of_adapters_that_are_not_read_say_what_to_do(kind, own_adapter):
    edit(own_adapter, peft_type=kind)
    with pytest.raises(UnsupportedModelError, match=rf"{kind} adapter.*PeftModel\.from_pretrained\(policy"):
        load(own_adapter)
