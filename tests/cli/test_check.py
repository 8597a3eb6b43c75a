"""`hf-vlm-rl check` says what is so, without weights."""

import json
import re
import shutil
import warnings

import pytest

from hf_vlm_rl.cli import main
from hf_vlm_rl.families.tiny import FAMILIES
from tests.images import photo


@pytest.fixture
def without_weights(checkpoint, tmp_path):
    """`without_weights(family)`: a copy of its checkpoint that has no weights."""

    def copy(family):
        ignored = shutil.ignore_patterns("*.safetensors", "*.index.json")
        return shutil.copytree(checkpoint(family), tmp_path / family, ignore=ignored)

    return copy


def printed(capsys) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return dict(re.split(r":\s+", line, maxsplit=1) for line in lines)


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_are_those_of_the_loaded_policy(family, without_weights, policy_for, tmp_path, capsys):
    photo("coffee", (160, 120)).save(tmp_path / "coffee.png")
    assert main(["check", str(without_weights(family)), "--image", str(tmp_path / "coffee.png")]) == 0
    found, policy = printed(capsys), policy_for(family)
    content = [
        {"type": "image", "image": photo("coffee", (160, 120))},
        {"type": "text", "text": "What is it?"},
    ]
    batch = policy.processing_class.apply_chat_template(
        [[{"role": "user", "content": content}]], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    tokens = list(batch["input_ids"][0]).count(policy.config.image_token_id)
    assert found["model"] == f"{type(policy).__name__} (family {family})"
    assert found["parameters"] == f"{policy.num_parameters():,}"
    assert found["image"] == f"{tokens} tokens for 160 x 120 pixels"
    assert found["prompt"].startswith(f"{len(batch['input_ids'][0])} tokens")
    assert "What is it?" in found["template"]
    assert found["LoRA"] == f"{len(policy.lora_config().target_modules)} linear layers of the decoder"
    assert found["sharing"] == "rows that begin alike share their prompts"


def test_experts_are_counted_apart(without_weights, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert main(["check", str(without_weights("qwen3_vl_moe"))]) == 0
    found = printed(capsys)
    total, active = re.fullmatch(r"([\d,]+), ([\d,]+) active for a token", found["parameters"]).groups()
    # Two of four experts, of 3 x 64 x 32 weights in each of two layers, are not chosen.
    assert int(total.replace(",", "")) - int(active.replace(",", "")) == 3 * 2 * 3 * 64 * 32
    assert found["LoRA"] == (
        "12 linear layers of the decoder; not model.language_model.layers.*.mlp.experts.gate_up_proj, "
        "model.language_model.layers.*.mlp.experts.down_proj unless experts=True"
    )


def test_a_derived_family_is_shown_and_compared_on_request(checkpoint, capsys):
    assert main(["check", str(checkpoint("minicpmv4_7")), "--weights"]) == 0
    found = printed(capsys)
    assert found["family"].startswith("minicpmv4_7, compared with stock when it is loaded")
    assert "vision=model.vision_tower" in found["derived"]
    assert "companions=target_sizes; grids; language=model.language_model" in found["derived"]
    assert float(re.search(r"by (\S+) of", found["off stock"])[1]) < 2e-5
    assert "disagree" not in found["stock batches"]
    assert main(["check", str(checkpoint("internvl"))]) == 0
    assert printed(capsys)["family"] == "internvl, equal to stock in this package's tests"


def test_a_larger_image_has_more_tokens(without_weights, capsys):
    model = str(without_weights("internvl"))
    counts = []
    for size in ("112x112", "336x224"):
        assert main(["check", model, "--image-size", size]) == 0
        counts.append(int(printed(capsys)["image"].split()[0]))
    assert counts == [16, 7 * 16]


def test_a_model_without_a_family_is_refused(without_weights, capsys):
    model = without_weights("internvl")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    assert main(["check", str(model)]) == 1
    assert "bert" in capsys.readouterr().err
