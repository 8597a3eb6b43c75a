"""The files of examples/cluster and the commands of docs/cluster.md, as far as they run without a cluster.

A `srun` and a `scontrol` of this test are first on PATH: they start the tasks of two machines on this one.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_vlm_rl.families.tiny import write_checkpoint
from tests.documents.pages import PAGES, ROOT, blocks
from tests.documents.shell import commands, without_variables
from tests.images import photo

FOLDER = ROOT / "examples" / "cluster"
# Starts a command for each machine. It passes SIGTERM to the first alone, as Kubernetes does when it moves a
# pod: harder than what SLURM does, which tells all of them before the time of a job is over.
SRUN = """#!/bin/bash
[[ $1 == --kill-on-bad-exit=1 ]] || exit 2
shift
tasks=()
for node in 0 1; do
    export SLURM_PROCID=$node SLURM_NODEID=$node SLURM_LOCALID=0 HF_VLM_RL_CACHE=$WORK/images-$node
    "$@" 2>$WORK/errors-$node &
    tasks+=($!)
done
trap 'kill -TERM "${tasks[0]}"' TERM
echo $$ > $WORK/srun
status=0
for task in "${tasks[@]}"; do
    while :; do
        wait $task && one=0 || one=$?
        kill -0 $task 2>/dev/null || break
    done
    [[ $one == 0 ]] || status=1
done
exit $status
"""
SCONTROL = """#!/bin/bash
if [[ $1 == show ]]; then printf '127.0.0.1\\n127.0.0.2\\n'; else echo "$@" >> $WORK/asked; fi
"""
LIMIT = 240


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with the model and the data that commands name, and the checkout's examples beside them."""
    write_checkpoint("qwen2_5_vl", tmp_path / "model")
    (tmp_path / "data").mkdir()
    rows = []
    for name in ("cat", "coffee", "rocket", "astronaut"):
        photo(name, (112, 112)).save(tmp_path / "data" / f"{name}.png")
        rows.append({"file_name": f"{name}.png", "question": "What is it?", "answer": name})
    (tmp_path / "data" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = tmp_path / "bin"
    programs.mkdir()
    torchrun = f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("torchrun", torchrun)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)]),
        "WORK": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "SLURM_JOB_ID": "7",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "node[0-1]",
        "MASTER_PORT": free_port(),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sbatch(out: str, ended_after: int | None = None) -> int:
    """Run train.sbatch as a job; SIGTERM goes to its steps after a checkpoint. Returns its status."""
    # In later epochs, TRL's sampler would give a resumed run the rows in another order.
    steps = "--max_steps 20 --save_steps 4 --learning_rate 0.01 --shuffle_dataset false"
    rows = "--num_generations 2 --per_device_train_batch_size 2 --max_completion_length 4"
    tiny = "--model model --data data --dtype float32 --bf16 false --use_cpu --ddp_backend gloo"
    options = [*f"{tiny} {steps} {rows}".split(), "--report_to", "none"]
    job = subprocess.Popen(
        ["bash", FOLDER / "train.sbatch", *options], env=os.environ | {"OUT": out}, stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + LIMIT
    while ended_after is not None and not Path(f"{out}/checkpoint-{ended_after}/trainer_state.json").exists():
        if job.poll() is not None or time.monotonic() > end:
            job.kill()
            pytest.fail("".join(file.read_text()[-4000:] for file in Path().glob("errors-*")))
        time.sleep(0.02)
    if ended_after is not None:
        os.kill(int(Path("srun").read_text()), signal.SIGTERM)
    return job.wait(LIMIT)


def written() -> str:
    return "".join(file.read_text()[-4000:] for file in Path().glob("errors-*"))


def checkpoints(out: str) -> list[int]:
    return sorted(int(folder.name.rpartition("-")[2]) for folder in Path(out).glob("checkpoint-*"))


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_a_slurm_job_that_is_ended_asks_for_another_turn_and_goes_on_to_the_same_weights(work):
    assert sbatch("whole") == 0, written()
    assert not Path("asked").exists()
    assert sbatch("out", ended_after=4) == 0, written()
    assert Path("asked").read_text() == "requeue 7\n"
    ended = checkpoints("out")[-1]
    assert 4 <= ended < 20
    assert not Path("out/adapter").exists()
    assert sbatch("out") == 0, written()
    assert Path("asked").read_text() == "requeue 7\n"
    state = json.loads(Path("out/checkpoint-20/trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry] == list(range(1, 21))
    assert any(entry["grad_norm"] > 0.1 for entry in state["log_history"][:ended])
    found, expected = (load_file(f"{out}/adapter/adapter_model.safetensors") for out in ("out", "whole"))
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_slurm_job_that_fails_before_a_checkpoint_asks_for_no_other_turn(work):
    shutil.rmtree("data")
    (work / "bin" / "srun").write_text("#!/bin/bash\nexit 1\n")
    assert sbatch("out") == 1
    assert not Path("asked").exists()


def test_the_sbatch_file_signals_its_steps_and_leaves_time_to_save():
    lines = (FOLDER / "train.sbatch").read_text().splitlines()
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if "#SBATCH" in line)
    name, seconds = options["signal"].split("@")
    assert name == "TERM"  # `B:TERM` would signal the shell alone
    (waits,) = re.findall(r"--shutdown-timeout (\d+)", "\n".join(lines))
    assert int(waits) < int(seconds)
    assert options["ntasks-per-node"] == "1"  # torchrun starts the others
    assert {"requeue", "nodes", "gpus-per-node", "time"} <= options.keys()


def test_the_manifest_is_an_indexed_job_whose_pods_find_the_first_by_name():
    service, job = yaml.safe_load_all((FOLDER / "job.yaml").read_text())
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    name, spec = job["metadata"]["name"], job["spec"]
    assert spec.keys() == {"completionMode", "completions", "parallelism", "backoffLimit", "template"}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]  # all at once, or they wait for each other
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert pod["restartPolicy"] == "OnFailure"
    (container,) = pod["containers"]
    (script,) = container["args"]
    words = shlex.split(script)
    options = dict(itertools.pairwise(words))
    assert words[:2] == ["exec", "torchrun"]  # SIGTERM goes to the first process of a container
    assert options["--nnodes"] == str(spec["completions"])
    assert options["--node-rank"] == "$JOB_COMPLETION_INDEX"
    assert options["--master-addr"] == f"{name}-0.{pod['subdomain']}"
    assert options["--master-port"] == str(service["spec"]["ports"][0]["port"])
    assert int(options["--shutdown-timeout"]) < pod["terminationGracePeriodSeconds"]
    assert "examples/cluster/train.py" in words
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert all(isinstance(value, str) for value in variables.values())
    assert int(variables["PER_NODE"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    assert variables["HF_VLM_RL_CACHE"] == mounted["images"]


def lines(program: str, language: str) -> list[list[str]]:
    found = (
        commands(b.source) for b in blocks(PAGES["docs/cluster.md"].read_text()) if b.language == language
    )
    return [words for block in found for words in block if without_variables(words)[:1] == [program]]


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.slow
def test_the_two_commands_of_the_page_train_on_two_machines(work):
    port, machines = free_port(), []
    for words in lines("accelerate", "bash"):
        variables = dict(word.split("=", 1) for word in words[: -len(without_variables(words))])
        _, launch, *rest = [port if word == "29500" else word for word in without_variables(words)]
        command = [sys.executable, "-m", f"accelerate.commands.{launch}", *rest]
        machines.append(subprocess.Popen(command, env=os.environ | variables))
    assert [machine.wait(LIMIT) for machine in machines] == [0, 0]
    assert checkpoints("out") == [4]
    assert Path("out/adapter/adapter_model.safetensors").exists()


def test_the_hub_resolves_the_jobs_of_the_page():
    jobs = lines("hf", "text")
    assert len(jobs) == 3
    for words in jobs:
        if words[1] == "jobs":
            command = [Path(sys.executable).with_name("hf"), "jobs", "run", "--dry-run", *words[3:]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "(dry run) Job not submitted." in done.stdout, done.stderr
            assert "network_group    vlm" in done.stdout


def test_every_test_that_the_table_names_exists():
    named = set(re.findall(r"`(test_\w+\.py)`", PAGES["docs/cluster.md"].read_text()))
    homes = (ROOT / "tests" / "documents", ROOT / "tests" / "trainers" / "distributed")
    assert len(named) > 5
    assert named <= {path.name for home in homes for path in home.glob("test_*.py")}
