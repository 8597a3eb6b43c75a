"""A Hub on this machine, with tiny models under the names that the pages use."""

import copy
import json
from pathlib import Path

import pytest

from tests.hub import server
from tests.hub.conftest import client_environment
from tests.loading.adapters.models import write_adapter
from tests.loading.internvl_chat.originals import write_original

USER = "hf_user_token_of_a_test"  # of the account `user`
BASE = "Qwen/Qwen2.5-VL-3B-Instruct"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="package")
def hub(checkpoint, _loaded_policy, tmp_path_factory):
    """The server: two Qwen2.5-VL, others by their makers' names, and an adapter of the first."""
    made = tmp_path_factory.mktemp("hub")
    adapter = write_adapter(copy.deepcopy(_loaded_policy("qwen2_5_vl")), made / "adapter", processor=True)
    write_original(made / "original", {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})
    with server.Hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setitem(server.USERS, USER, "user")
        for name in (BASE, "Qwen/Qwen2.5-VL-7B-Instruct"):
            hub.add(name, files(checkpoint("qwen2_5_vl")) | {"README.md": b"---\nlicense: apache-2.0\n---\n"})
        hub.add("OpenGVLab/InternVL2_5-8B", files(made / "original"))
        hub.add("moonshotai/Kimi-K2.5", files(checkpoint("kimi_k25")))
        hub.add("LiquidAI/LFM2-VL-1.6B", files(checkpoint("lfm2_vl")))
        config = json.loads((adapter / "adapter_config.json").read_text())
        config |= {"base_model_name_or_path": BASE, "revision": hub.repositories[BASE].head().oid}
        hub.add("user/adapter", files(adapter) | {"adapter_config.json": json.dumps(config).encode()})
        yield hub


@pytest.fixture(scope="package")
def environment(hub, tmp_path_factory):
    """Variables of a process that has this Hub and no other, and nothing stored."""
    own = {"HF_TOKEN": USER, "TOKENIZERS_PARALLELISM": "false"}
    return client_environment(hub, tmp_path_factory.mktemp("home")) | own
