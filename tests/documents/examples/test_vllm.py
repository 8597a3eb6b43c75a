"""The vLLM configurations are what the installed TRL's GRPO takes, and the script trains with them."""

import pytest
import yaml
from trl import GRPOConfig, TrlParser
from trl.trainer import grpo_trainer

from hf_vlm_rl.vllm import vllm_rollout
from tests.documents.examples.conftest import SCRIPTS, TINY, run_script
from tests.trainers.runs import flat
from tests.vllm.fake import FakeGeneration
from tests.vllm.fake_server import FakeServer

CONFIGS = SCRIPTS / "vllm_configs"


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_grpo_takes_every_setting_of_the_configuration(mode, tmp_path):
    path = CONFIGS / f"{mode}.yaml"
    given = ["--config", str(path), "--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false"]
    # An unknown name is an error of the parser.
    (config,) = TrlParser((GRPOConfig,)).parse_args_and_config(given)
    settings = yaml.safe_load(path.read_text())
    assert settings["vllm_mode"] == mode
    assert {name: getattr(config, name) for name in settings} == settings


def test_every_configuration_is_tested():
    assert {path.stem for path in CONFIGS.iterdir()} == {"colocate", "server"}


@pytest.mark.trl
@pytest.mark.parametrize(("mode", "engine"), [("colocate", FakeGeneration), ("server", FakeServer)])
def test_grpo_vqa_samples_with_vllm(mode, engine, questions, checkpoint, monkeypatch, tmp_path):
    """With a stand-in for vLLM."""
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", engine)
    places = {"model": checkpoint("qwen2_5_vl"), "data": questions, "output_dir": tmp_path / "out"}
    short = {
        "held_out": 1,
        "num_generations": 2,
        "max_completion_length": 6,
        "config": CONFIGS / f"{mode}.yaml",
    }
    trainer = run_script("grpo_vqa", **TINY | places | short)["trainer"]
    assert trainer.rollout_func is vllm_rollout
    engine = trainer.vllm_generation
    asked = engine.asked if mode == "colocate" else engine.server.asked
    assert len(asked) >= trainer.state.global_step == 2  # a server is asked prompt by prompt
    assert max(flat(trainer, "sampling/sampling_logp_difference/max")) < 1e-4
