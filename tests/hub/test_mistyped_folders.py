"""A mistyped folder is told at once: the Hub gets no request, or a single one where the name may be an id."""

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.data import load_any
from hf_vlm_rl.errors import CheckpointError, DataError
from tests.hub.conftest import BASE
from tests.hub.server import Fault

NO_IDS = {
    "./outputs/rum": "Did you mean 'outputs/run'?",
    "outputs/rum/": "Did you mean 'outputs/run'?",
    "outptus/run/adapter": "There is no folder 'outptus'. Did you mean 'outputs'?",
    "../outputs/run": "There is no folder '../outputs'.",
    "/no/such/folder": "There is no folder '/no'.",
    "~/outputs": "Did you mean '{home}/outputs'?",
    "outputs/run/adaptor": "Did you mean 'outputs/run/adapter'?",
    "outputs/run/chekpoint-5": "Did you mean 'outputs/run/checkpoint-5' or 'outputs/run/checkpoint-10'?",
}
MAY_BE_IDS = {
    "outputs/rum": "Did you mean 'outputs/run'?",
    "outputs/of_another_name": "Expected a directory",
    "outptus/run": "There is no folder 'outptus'. Did you mean 'outputs'?",
    "outputs/a--b": "Expected a directory",
    "ouputs": "Did you mean 'outputs'?",
}


@pytest.fixture
def folders(hub, tmp_path, monkeypatch):
    """A working directory, which is the home as well, below an empty one; the requests of the test alone."""
    home = tmp_path / "home"
    for name in ("adapter", "checkpoint-5", "checkpoint-10"):
        (home / "outputs/run" / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


def about(source, hub):
    """The requests for a repository; the client asks once for something else."""
    return [request for request in hub.requests if source in request]


@pytest.mark.parametrize("source", NO_IDS)
@pytest.mark.parametrize("load", [AutoVLMPolicy.from_pretrained, AutoVLMPolicy.tokenizer])
def test_a_path_that_is_no_id_asks_nobody(load, source, hub, folders):
    with pytest.raises(CheckpointError) as raised:
        load(source)
    assert NO_IDS[source].format(home=folders) in str(raised.value)
    assert hub.requests == []


@pytest.mark.parametrize("source", MAY_BE_IDS)
def test_a_name_beside_a_folder_asks_once(source, hub, folders):
    with pytest.raises(CheckpointError) as raised:
        AutoVLMPolicy.from_pretrained(source)
    assert MAY_BE_IDS[source] in str(raised.value)
    assert about(source, hub) == [f"GET /api/models/{source}"] * ("--" not in source)


def test_a_model_of_the_hub_is_loaded_beside_a_folder_of_its_name(hub, folders, tmp_path):
    (folders / BASE).with_name("tiny-internvm").mkdir(parents=True)
    options = {"dtype": "float32", "cache_dir": tmp_path / "cache"}
    AutoVLMPolicy.from_pretrained(BASE, **options)
    assert f"GET /{BASE}/resolve/main/config.json" in {each.replace("HEAD", "GET") for each in hub.requests}
    hub.requests.clear()
    with pytest.raises(CheckpointError, match="Did you mean 'org/tiny-internvm'"):
        AutoVLMPolicy.from_pretrained("org/tiny-internvx", **options, local_files_only=True)
    AutoVLMPolicy.from_pretrained(BASE, **options, local_files_only=True)  # of the cache
    assert hub.requests == []


@pytest.mark.parametrize("status", [None, 503])
def test_a_hub_that_is_not_reached_or_overloaded(status, hub, folders):
    (folders / "org").mkdir()
    hub.faults.append(Fault("GET /api/models/org/x", status, times=1))
    with pytest.raises(CheckpointError if status is None else OSError) as raised:
        AutoVLMPolicy.from_pretrained("org/x")
    # An answer that is none leaves the last word to transformers.
    assert ("the Hub was not reached" in str(raised.value)) == (status is None)


@pytest.mark.parametrize("source", NO_IDS)
def test_rows_of_a_path_that_is_no_id_ask_nobody(source, hub, folders):
    with pytest.raises(DataError) as raised:
        load_any(source)
    assert NO_IDS[source].format(home=folders) in str(raised.value)
    assert hub.requests == []


def test_rows_beside_a_folder_ask_once(hub, folders):
    with pytest.raises(DataError, match=r"shows no such dataset to you.*Did you mean 'outputs/run'"):
        load_any("outputs/rum")
    assert about("outputs/rum", hub) == ["GET /api/datasets/outputs/rum"]
