"""Accelerate takes the configurations of examples/; `tests/trainers/distributed` trains with all."""

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser

from tests.documents.examples.conftest import SCRIPTS

CONFIGS = SCRIPTS / "accelerate_configs"
KINDS = {
    "ddp": ("MULTI_GPU", 8),
    "fsdp2": ("FSDP", 8),
    "deepspeed_zero2": ("DEEPSPEED", 8),
    "deepspeed_zero3": ("DEEPSPEED", 8),
    "multi_node_zero3": ("DEEPSPEED", 32),
}


def test_every_configuration_is_tested():
    assert {path.stem for path in CONFIGS.iterdir()} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_accelerate_loads_the_configuration(name):
    config = load_config_from_file(str(CONFIGS / f"{name}.yaml"))
    assert (config.distributed_type.value, config.num_processes) == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_is_an_option_of_accelerate_launch(name):
    # The loader takes anything inside `fsdp_config` and `deepspeed_config`, a misspelt name as well.
    known = vars(launch_command_parser().parse_args(["script.py"]))
    settings = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    for part in ("fsdp_config", "deepspeed_config"):
        assert set(settings.get(part, {})) <= set(known)
