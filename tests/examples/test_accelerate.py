"""The accelerate configurations are what accelerate's own loader takes."""

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.examples.conftest import SCRIPTS


@pytest.mark.parametrize(
    ("name", "kind", "processes"),
    [
        ("ddp", "MULTI_GPU", 8),
        ("fsdp2", "FSDP", 8),
        ("deepspeed_zero2", "DEEPSPEED", 8),
        ("deepspeed_zero3", "DEEPSPEED", 8),
        ("multi_node_zero3", "DEEPSPEED", 32),
    ],
)
def test_accelerate_loads_the_configuration(name, kind, processes):
    config = load_config_from_file(str(SCRIPTS / "accelerate" / f"{name}.yaml"))
    assert (config.distributed_type.value, config.num_processes) == (kind, processes)
