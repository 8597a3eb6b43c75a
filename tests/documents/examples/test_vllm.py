"""The vLLM configurations are what the installed TRL's GRPO takes. vLLM itself needs a GPU and is not run."""

import pytest
import yaml
from trl import GRPOConfig, TrlParser

from tests.documents.examples.conftest import SCRIPTS

CONFIGS = SCRIPTS / "vllm"


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
