"""`hf-vlm-rl tiny` writes checkpoints that everything else takes, and touches nothing that is there."""

import hashlib

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli import main
from tests.images import photo


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_policy_of_it_answers_and_the_weights_follow_the_seed(tmp_path, capsys):
    for name, seed in (("a", "0"), ("again", "0"), ("other", "1")):
        assert main(["tiny", str(tmp_path / name), "--family", "smolvlm", "--seed", seed]) == 0
    assert digest(tmp_path / "a") == digest(tmp_path / "again") != digest(tmp_path / "other")
    policy = AutoVLMPolicy.from_pretrained(tmp_path / "a")
    assert policy.family.model_type == "smolvlm"
    assert policy.num_parameters() < 1_000_000
    answer = policy.chat("What is it?", photo("cat", (112, 112)), max_new_tokens=5, min_new_tokens=5)
    assert isinstance(answer, str)


def test_without_a_family_it_is_that_of_the_documentation(tmp_path):
    assert main(["tiny", str(tmp_path)]) == 0  # an empty directory will do
    assert AutoVLMPolicy.from_pretrained(tmp_path).family.model_type == "qwen2_5_vl"


def test_a_directory_with_files_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["tiny", str(tmp_path)]) == 1
    assert "is no empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("qwen25_vl", "Did you mean qwen2_5_vl? Expected one of internvl, qwen2_vl, "),
        ("llama", "smolvlm"),
        ("aya_vision", "mistral3, paligemma."),
    ],
)
def test_other_families_are_refused_with_a_list(family, message, tmp_path, capsys):
    assert main(["tiny", str(tmp_path / "model"), "--family", family]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
