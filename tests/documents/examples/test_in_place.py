"""Every script runs as its user types it: `python examples/NAME.py`, a process of its own, where it lies.

Python looks for packages in a script's folder first. TRL once took a folder `examples/vllm` for vLLM.
"""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.documents.examples.conftest import SCRIPTS, TINY
from tests.documents.pages import ROOT

# Libraries that look for packages by name, in modules that have "import" in their names.
PROBING = ("accelerate", "datasets", "peft", "transformers", "trl")
PROBE = re.compile(r"""(?:_is_package_available|find_spec|_check_available)\(\s*["'](\w+)""")
SAMPLED = {"num_generations": 2, "max_completion_length": 4}
# Scripts that train: the fixture with their rows, and what they need beside `TINY`.
TRAINING = {
    "dpo": ("preferences", {}),
    "grpo_brand": ("brands", SAMPLED),
    "grpo_rec": ("expressions", {**SAMPLED, "scale": 1000}),
    "grpo_vqa": ("questions", SAMPLED),
    "ppo_vqa": ("questions", {"response_length": 4, "total_episodes": 4, "num_mini_batches": 2}),
    "qlora_24gb": ("questions", {**SAMPLED, "optim": "adamw_torch", "max_tiles": 1}),
    "sft": ("demonstrations", {}),
}
# They share folders of code, and start as modules of the checkout, too.
DEMOS = ("grpo_zoom", "ppo_digits")
# The first trains in tests/vllm/engine, as it asks a real vLLM; the second trains nothing.
OTHERS = ("async_grpo_vqa", "infer_adapter")


def probed() -> set[str]:
    """Names of packages that the libraries look for."""
    homes = [Path(find_spec(library).origin).parent for library in PROBING]
    texts = [path.read_text() for home in homes for path in home.rglob("*import*.py")]
    return {name for text in texts for name in PROBE.findall(text)}


def run(folder: Path, *arguments: object) -> str:
    """What `python ARGUMENTS` prints in a folder."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_called_like_a_package():
    packages = {*packages_distributions(), *sys.stdlib_module_names, *probed()}
    assert {"vllm", "deepspeed", "wandb", "accelerate"} <= packages
    assert not {path.stem for path in SCRIPTS.iterdir()} & packages


@pytest.mark.trl
@pytest.mark.slow
def test_a_script_starts_where_it_lies():
    assert "--num_generations" in run(SCRIPTS, "grpo_vqa.py", "--help")


@pytest.mark.slow
@pytest.mark.parametrize("script", TRAINING)
def test_every_script_that_trains_leaves_an_adapter(script, checkpoint, request, tmp_path):
    rows, own = TRAINING[script]
    places = {"model": checkpoint("internvl"), "data": request.getfixturevalue(rows), "output_dir": tmp_path}
    given = TINY | {"held_out": 1} | own | places
    if script == "qlora_24gb":
        del given["dtype"]  # of the quantised weights, which the script chooses
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    run(ROOT, f"examples/{script}.py", *options)
    assert (tmp_path / "adapter/adapter_model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        *([f"examples/{name}.py"] for name in (*OTHERS, *DEMOS)),
        *(["-m", f"examples.{name}"] for name in DEMOS),
    ],
)
def test_the_others_start_too(arguments):
    assert "--help" in run(ROOT, *arguments, "--help")


def test_no_script_is_left_out():
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*TRAINING, *DEMOS, *OTHERS}
