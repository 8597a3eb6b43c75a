"""The true client of the Hub, pointed at a small server on this machine, and a run to push.

`huggingface_hub` reads HF_ENDPOINT and HF_HUB_OFFLINE when it is imported, which the other tests have
done by now. So its constants are set here; `test_command.py` runs a process with the variables instead.
"""

import os
import socket
import sys

import pytest
import transformers
from huggingface_hub import constants, hf_api
from huggingface_hub.utils import _http

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.hub import push_adapter
from hf_vlm_rl.hub.cards import Evaluation
from tests.hub.server import ALICE, Hub
from tests.trainers.runs import grpo, mixture

BASE = "org/tiny-internvl"


@pytest.fixture(scope="package")
def server(checkpoint, tmp_path_factory):
    """The server, with a base model."""
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path_factory.mktemp("cache")),
        }.items():
            patch.setattr(constants, name, value)
        patch.setenv("HF_HUB_OFFLINE", "0")  # PEFT looks there
        # The clients that were made before, with the address of then.
        patch.setattr(hf_api.api, "endpoint", hub.url)
        patch.setattr(transformers.utils.hub, "_hf_api", None)
        patch.setattr(socket.socket, "connect", _only_this_machine(socket.socket.connect))
        # Retries wait for seconds: the waits are cut, the retries are not.
        patch.setattr(_http.time, "sleep", lambda seconds: None)
        files = {path.name: path.read_bytes() for path in checkpoint("internvl").iterdir()}
        files["README.md"] = b"---\nlicense: apache-2.0\nlanguage: [en]\n---\n# Tiny\n"
        hub.add(BASE, files)
        yield hub


@pytest.fixture
def hub(server):
    """The server as if nobody had pushed yet."""
    server.repositories = {BASE: server.repositories[BASE]}
    server.objects.clear()
    for log in (server.requests, server.received, server.faults):
        log.clear()
    return server


@pytest.fixture(scope="package")
def trainer(server, tmp_path_factory):
    """Stock GRPO after three steps on a policy that was loaded from the server."""
    policy = AutoVLMPolicy.from_pretrained(BASE, dtype="float32")
    out = tmp_path_factory.mktemp("run")
    options = {"steps_per_generation": 1, "hub_token": ALICE, "run_name": "a run of mine"}
    run = grpo(policy, mixture("internvl"), out, peft=policy.lora_config(r=4), **options)
    run.train()
    return run


@pytest.fixture
def push(hub, trainer, tmp_path):
    """`push(**changed)`: `push_adapter` of the run to alice/adapter."""
    defaults = {"repo_id": "alice/adapter", "output_dir": tmp_path / "adapter", "token": ALICE}
    return lambda **changed: push_adapter(trainer, **defaults | changed)


@pytest.fixture
def card():
    return {
        "summary": "Says what it sees.",
        "datasets": ["org/photos"],
        "language": ["en"],
        "evaluations": [
            Evaluation("Photos", "accuracy", 500, 0.808, 0.596, (0.552, 0.639), (0.771, 0.842)),
        ],
    }


def client_environment(hub, home):
    """Variables for a process whose Hub is `hub`, and that has nothing stored."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_XET": "1"}
    return kept | own | {"HF_VLM_RL_CACHE": str(home / "images"), "OMP_NUM_THREADS": "1"}


def python(*arguments):
    return [sys.executable, *arguments]


def _only_this_machine(connect):
    def guarded(self, address):
        if self.family == socket.AF_INET and address[0] != "127.0.0.1":
            raise OSError(f"a test reached for {address}")
        return connect(self, address)

    return guarded
