"""Shell lines of pages: which of them run, how, and why others do not."""

import itertools
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents.examples.conftest import TINY

# By how a line begins, without variables. A line that is in no list and that `run_line` cannot run fails.
NOT_RUN = {
    "accelerate launch --config_file examples/accelerate_configs/ddp.yaml train.py": "train.py is the "
    "reader's; tests/trainers/distributed launches two processes by this file",
    "accelerate launch --config_file examples/accelerate_configs/ddp.yaml --mixed_precision no": "two "
    "machines wait for each other; tests/documents/test_cluster.py starts both",
    "accelerate launch -m hf_vlm_rl.cli trl": "it is `hf-vlm-rl trl` in several processes",
    "hf-vlm-rl demo": "minutes; tests/cli/test_demo.py runs it with fewer steps, `make wheel` from a wheel",
    "hf-vlm-rl eval Qwen/Qwen2.5-VL-3B-Instruct --lmms": "it downloads benchmarks, as the next line",
    "hf-vlm-rl eval user/adapter --lmms": "it downloads benchmarks; `make lmms` runs tasks of local files",
    "hf-vlm-rl trl": "its data is the reader's; tests/loading/internvl_chat/test_string_ids.py has its own",
    "hf-vlm-rl try": "it waits for a reader; tests/browser/test_try.py asks the page",
    "hf-vlm-rl vllm-front": "it answers until it is stopped; tests/front and `make test-vllm` ask it",
    "lmms-eval --model hf_vlm_rl": "it downloads benchmarks; `make lmms` runs tasks of local files",
    "pip install": "it downloads up to 6 GB; `make install` and `make site-check` install these extras",
    "python -m benchmarks.gpu": "it needs a card or minutes; tests/benchmarks/test_gpu_command.py runs parts",
    "python -m examples.demo_brands.": "it starts from a warm start that trains for minutes",
    "python examples/async_grpo_vqa.py": "it needs servers; `make test-vllm` trains by it",
    "swift rlhf": "it is in another environment; tests/documents/test_migrate.py runs it there",
    "torchrun --nproc_per_node 8 src/open_r1": "VLM-R1's; tests/documents/test_migrate.py runs its trainer",
    "vllm serve": "vLLM is not in this environment; `make test-vllm` starts servers with these options",
}
# Commands of `hf-vlm-rl` that start in seconds: a process of its own runs each, as a reader's terminal does.
QUICK = ("clean", "data", "tiny")
# What each script gets besides what the page says: a CPU and a minute.
TRAINING = TINY | {"max_steps": 1, "held_out": 1}
ONLINE = TRAINING | {"num_generations": 2, "max_completion_length": 6}
ASKING = {"dtype": "float32", "device_map": "cpu", "max_new_tokens": 4}
BESIDES = {
    "sft": TRAINING,
    "grpo_vqa": ONLINE,
    "grpo_brand": ONLINE,
    "grpo_rec": ONLINE,
    "infer_adapter": ASKING,
}


def commands(source: str) -> list[list[str]]:
    """The command lines of a block, without comments; `a && b` is two."""
    words = [shlex.split(line, comments=True) for line in source.replace("\\\n", " ").splitlines()]
    parts = itertools.chain.from_iterable(
        (list(part) for is_and, part in itertools.groupby(line, "&&".__eq__) if not is_and) for line in words
    )
    return list(parts)


def without_variables(words: list[str]) -> list[str]:
    return list(itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))


def reason(words: list[str]) -> str | None:
    """Why a line does not run; None if it does."""
    line = shlex.join(without_variables(words))
    return next((why for begin, why in NOT_RUN.items() if line.startswith(begin)), None)


def script_of(words: list[str]) -> tuple[str, list[str]]:
    """The script of examples/ that a line starts, and its arguments.

    Raises:
        ValueError: If it starts something else.
    """
    program, *rest = without_variables(words)
    if (program, rest[0]) == ("accelerate", "launch"):
        from accelerate.commands.launch import launch_command_parser

        parsed = launch_command_parser().parse_args(rest[1:])
        script, arguments = parsed.training_script, parsed.training_script_args
    else:
        script, *arguments = rest[1:] if (program, rest[0]) == ("uv", "run") else rest
    if program not in ("accelerate", "python", "uv") or Path(script).stem not in BESIDES:
        raise ValueError(f"{shlex.join(words)} neither runs nor says why: tests/documents/shell.py")
    return script, arguments


def run_line(words: list[str]) -> None:
    """Run a line in the working directory, a copy of the repository; training is short, and `make` runs dry.

    Raises:
        ValueError: If it fails, or cannot be run here.
    """
    program, *rest = without_variables(words)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if program == "hf-vlm-rl" and rest[0] in QUICK:
        status = subprocess.run([program, *rest], env=os.environ | {"PATH": path}, check=False).returncode
    elif program == "hf-vlm-rl":
        status = _start(str(shutil.which(program, path=path)), rest)
    elif program == "make":
        status = subprocess.run(["make", "-n", *rest], check=False).returncode
    else:
        script, arguments = script_of(words)
        besides = BESIDES[Path(script).stem].items()
        status = _start(
            script, arguments + [text for name, value in besides for text in (f"--{name}", str(value))]
        )
    if status != 0:
        raise ValueError(f"{shlex.join(words)} ended with status {status}")


def _start(script: str, arguments: list[str]) -> int:
    """Run a script as `python SCRIPT ARGUMENTS` does, in a fork, which has paid for the imports.

    The installed `hf-vlm-rl` is a script, too.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent.resolve()))
    status = 1
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
