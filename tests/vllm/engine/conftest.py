"""A real vLLM on tiny models: `make test-vllm`, in an environment of its own."""

import functools
import importlib.util
import os

import pytest

# Elsewhere vLLM is not installed, and there is nothing to collect.
INSTALLED = importlib.util.find_spec("vllm") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]

if INSTALLED:
    from tests.vllm.engine import cpu
    from tests.vllm.engine.models import write_checkpoint


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """`served(family)`: directory of a tiny checkpoint that vLLM can run on a CPU."""
    base = tmp_path_factory.mktemp("served")
    return functools.cache(lambda family: write_checkpoint(family, base / family))


@pytest.fixture
def own_port(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", str(cpu.free_port()))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    yield
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
