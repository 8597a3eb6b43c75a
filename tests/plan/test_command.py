"""`hf-vlm-rl plan`: what it prints and its exit status."""

import re
import shutil

import pytest
from transformers import BitsAndBytesConfig
from trl import GRPOConfig

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.plan.report import paste
from hf_vlm_rl.plan.settings import Run, Settings, candidates
from tests.loading.internvl_chat.originals import write_original
from tests.mixtures import DECODERS, MIXTURES

SMALL = ["--image", "112x56", "--completion", "8", "--group", "4"]


@pytest.fixture(scope="module")
def without_weights(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan") / "internvl"
    shutil.copytree(checkpoint("internvl"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return str(folder)


def test_no_weights_are_needed(without_weights, capsys):
    assert cli.main(["plan", without_weights, "--gpu", "24GB", *SMALL]) == 0
    said = capsys.readouterr().out
    assert "weights: decoder" in said
    assert re.match(r"parameters: [\d,]+\nprompt: ", said)
    assert "bf16, no checkpointing, G=4, 4 rows x 1 accumulated" in said


@pytest.mark.parametrize("model_type", DECODERS)
def test_mixtures_of_experts_and_hybrid_decoders_are_planned(model_type, checkpoint, capsys):
    assert cli.main(["plan", str(checkpoint(model_type)), "--gpu", "24GB", *SMALL]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert ("active for a token" in first) == (model_type in MIXTURES)


@pytest.mark.slow
def test_status_is_1_and_the_message_says_how_much_is_missing(without_weights, capsys):
    assert cli.main(["plan", without_weights, "--gpu", "0.5GB", *SMALL]) == 1
    said = capsys.readouterr().out
    assert "Nothing fits: the least needs 0.8 GiB on each GPU, 0.3 more than there is." in said


def test_the_original_internvl_format_is_read(tmp_path, capsys):
    write_original(tmp_path / "original", {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})
    assert cli.main(["plan", str(tmp_path / "original"), "--gpu", "8GB", *SMALL]) == 0
    assert "rollout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--full", "--precision", "4bit"], "4-bit weights are not trained"),
        (["--vision"], "Got --vision without --full"),
        (["--num-gpus", "2", "--sharding", "zero3", "--precision", "4bit"], "4bit with --sharding zero3"),
    ],
)
def test_bad_values_are_named(without_weights, capsys, given, message):
    assert cli.main(["plan", without_weights, "--gpu", "8GB", *given]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--group", "1", "expected a whole number from 2 on"),
        ("--images", "-1", "expected a whole number from 0 on"),
        ("--rank", "none", "expected a whole number from 1 on"),
        ("--image", "0x4", "expected width x height"),
        ("--target", "everything", "language+projector"),
        ("--beta", "nan", "a number above 0"),
        ("--beta", "-1", "a number above 0"),
    ],
)
def test_bad_values_of_a_flag_end_with_2_and_name_the_flag(without_weights, capsys, flag, value, expected):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["plan", without_weights, "--gpu", "8GB", f"{flag}={value}"])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert f"argument {flag}: " in message
    assert expected in message


@pytest.mark.parametrize("size", ["much", "-3GB", "0", "9" * 400 + "GB"])
def test_a_size_that_is_none_is_refused(without_weights, capsys, size):
    with pytest.raises(SystemExit):
        cli.main(["plan", without_weights, f"--gpu={size}"])
    assert "expected a size as 24GB" in capsys.readouterr().err


def test_the_fewest_compromises_come_first():
    tried = list(candidates(Run(group=8)))
    assert tried[0] == Settings("bf16", False, 8, 1, 8)
    assert tried[1] == Settings("bf16", True, 8, 1, 8)
    assert [s.rows for s in tried[1:5]] == [8, 4, 2, 1]
    assert tried[5].precision == "4bit"
    assert [s.group for s in tried] == sorted((s.group for s in tried), reverse=True)


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_trl_gets_whole_groups(gpus):
    for settings in candidates(Run(group=8, gpus=gpus)):
        assert settings.rows * settings.accumulation * gpus % settings.group == 0


@pytest.mark.parametrize("precision", ["bf16", "4bit"])
def test_what_is_printed_runs(checkpoint, precision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = paste(Settings(precision, True, 2, 2, 4), Run(group=4)).replace(
        "bf16=True", "bf16=True, use_cpu=True"
    )
    names = {
        "AutoVLMPolicy": AutoVLMPolicy,
        "GRPOConfig": GRPOConfig,
        "BitsAndBytesConfig": BitsAndBytesConfig,
    }
    names["MODEL"] = checkpoint("internvl")
    exec(text, names)
    assert names["args"].generation_batch_size == 4
    assert names["peft_config"].r == 16


def test_a_full_training_is_pasted_with_its_tower_frozen():
    settings = next(candidates(run := Run(rank=None)))
    assert "policy.freeze(vision=True, projector=False)\n" in paste(settings, run)
    assert "freeze" not in paste(settings, Run(rank=None, vision=True)) + paste(settings, Run())
