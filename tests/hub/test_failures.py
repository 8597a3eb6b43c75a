"""A push that fails says why, leaves the local folder complete, and the next one finishes the job."""

import hashlib

import pytest
import torch
from huggingface_hub import constants
from peft import PeftModel
from safetensors.torch import save as save_safetensors

from hf_vlm_rl.errors import PushError
from hf_vlm_rl.hub import push_folder
from tests.hub.repositories import LARGE
from tests.hub.server import ALICE, BOB, Fault

REPO = "alice/adapter"
# More often than the client retries.
ALWAYS = 99

REFUSALS = {
    "401": (Fault("whoami|repos/create", 401, ALWAYS), "does not know who is asking.*hf auth login"),
    "403": (Fault("preupload", 403), "The token of alice may not write to alice/adapter"),
    "404": (Fault("commit", 404), "did not find alice/adapter.*revision"),
    "409": (Fault("commit", 409), "Somebody else pushed to alice/adapter at the same time"),
    "412": (Fault("commit", 412), "Somebody else pushed to alice/adapter at the same time"),
    "413": (Fault("commit", 413), "The Hub answered 413"),
    "503 for good": (Fault("objects/batch", 503, ALWAYS), "The Hub answered 503"),
    "drops for good": (Fault("PUT", None, ALWAYS), "The connection to http.* failed"),
    "no answer": (Fault("/api/models/alice", None, ALWAYS), "The connection to http.* failed"),
}


@pytest.mark.parametrize(("fault", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_what_to_do_and_the_same_call_finishes_the_push(
    push, hub, trainer, bare_for, tmp_path, fault, message
):
    hub.faults.append(Fault(fault.request, fault.status, fault.times))
    with pytest.raises(PushError, match=f"(?s){message}.*complete in {tmp_path}") as caught:
        push()
    assert "adapter_model.safetensors" not in (hub.files(REPO) if REPO in hub.repositories else {})
    assert ALICE not in str(caught.value)
    # Complete: plain PEFT loads it.
    PeftModel.from_pretrained(bare_for("internvl"), tmp_path / "adapter")
    hub.faults.clear()
    push()
    local = {path.name for path in (tmp_path / "adapter").rglob("*") if path.is_file()}
    assert {path.split("/")[-1] for path in hub.files(REPO)} == local - {"card.json"}


@pytest.mark.parametrize("fault", [Fault("PUT", None, 2), Fault("PUT", 500, 2), Fault("batch", 503, 2)])
def test_a_connection_that_drops_and_a_server_that_stumbles_are_tried_again(push, hub, fault):
    hub.faults.append(Fault(fault.request, fault.status, fault.times))
    push()
    assert "adapter_model.safetensors" in hub.files(REPO)
    assert sum(fault.request in request for request in hub.requests) >= 3


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("repos/create", 503), "answered 503.*was not changed"),
        (Fault("POST .*/commit/", None), "failed.*may have got the commit all the same"),
        (Fault("POST .*/commit/", 503), "answered 503.*may have got the commit all the same"),
    ],
)
def test_what_fails_at_the_repository_and_at_the_commit_is_said_at_once(push, hub, fault, said):
    hub.faults.append(Fault(fault.request, fault.status))
    with pytest.raises(PushError, match=f"(?s){said}"):
        push()
    push()
    assert "adapter_model.safetensors" in hub.files(REPO)


def test_a_commit_whose_answer_tells_nothing_is_a_push_error(push, hub):
    hub.faults.append(Fault("POST .*/commit/", 200))
    with pytest.raises(PushError, match=r"cannot be read \(KeyError.*may have got the commit"):
        push()


@pytest.mark.parametrize("fault", [Fault("repos/create", 503), Fault("POST .*/commit/", 409)])
def test_a_push_that_fails_leaves_the_folder_as_it_was(push, hub, tmp_path, fault):
    push(card={"summary": "Not as in other tests: the client keeps cards by their commit."})
    folder = tmp_path / "adapter"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    hub.faults.append(Fault(fault.request, fault.status))
    with pytest.raises(PushError):
        push_folder(folder, REPO, base_model="org/another", card={"summary": "Another."}, token=ALICE)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_files_that_arrived_before_a_failure_are_not_sent_again(push, hub):
    hub.faults.append(Fault("commit", 409))
    with pytest.raises(PushError):
        push()
    sent = list(hub.received)
    assert sent
    push()
    assert hub.received == sent
    large = [content for path, content in hub.files(REPO).items() if path.endswith(LARGE)]
    assert {hashlib.sha256(content).hexdigest() for content in large} == set(sent)


def test_a_repository_of_somebody_else_is_not_changed(push, hub):
    hub.add("bob/adapter", {"config.json": b"{}"})
    with pytest.raises(PushError, match=r"bob/adapter belongs to somebody else: alice .* alice/adapter"):
        push(repo_id="bob/adapter")
    assert hub.files("bob/adapter") == {"config.json": b"{}"}


def test_a_namespace_of_somebody_else_is_refused(push, hub):
    with pytest.raises(PushError, match="bob/other belongs to somebody else: alice may not write"):
        push(repo_id="bob/other")


def test_a_private_repository_of_somebody_else_looks_like_one_that_is_not_there(push, hub):
    hub.add("bob/secret", private=True)
    with pytest.raises(PushError, match="bob/secret belongs to somebody else"):
        push(repo_id="bob/secret")


@pytest.mark.parametrize("token", ["hf_wrong_token_of_a_test", False])
def test_without_a_valid_token_one_is_told_to_log_in(hub, push, token, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(PushError, match="hf auth login"):
        push(token=token)


def test_offline_mode_is_named(hub, push, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PushError, match="HF_HUB_OFFLINE is set"):
        push()


@pytest.mark.parametrize("status", [None, 503])
def test_a_failed_look_at_the_card_on_the_hub_does_not_overwrite_it(push, hub, status):
    push()
    hub.faults.append(Fault("HEAD .*README.md", status, ALWAYS))
    with pytest.raises(PushError):
        push(card={"summary": "Another."})
    assert "Another." not in hub.files(REPO)["README.md"].decode()


def test_metadata_that_the_hub_does_not_know_is_refused_before_anything_is_sent(push, hub):
    with pytest.raises(ValueError, match="license must be one of"):
        push(card={"license": "my own"})
    assert hub.received == []


def without(files, name):
    return {path: content for path, content in files.items() if path != name}


COMPLETE = {
    "adapter_model.safetensors": save_safetensors({"base_model.model.a.lora_A.weight": torch.ones(1)}),
    "adapter_config.json": b'{"peft_type": "LORA", "base_model_name_or_path": "org/base"}',
    "processor_config.json": b"{}",
}
FOLDERS = {
    "no folder": ({}, "no adapter_model.safetensors"),
    "pickled": ({"adapter_model.bin": b"\x80", "adapter_config.json": b"{}"}, "is a pickle"),
    "no config": ({"adapter_model.safetensors": b""}, "no adapter_config.json"),
    "damaged config": (COMPLETE | {"adapter_config.json": b"{"}, "adapter_config.json cannot be read"),
    "a list as config": (COMPLETE | {"adapter_config.json": b"[]"}, "adapter_config.json cannot be read"),
    "damaged weights": (COMPLETE | {"adapter_model.safetensors": b"\0" * 9}, "is damaged or truncated"),
    "no processor": (without(COMPLETE, "processor_config.json"), "native processor"),
}


@pytest.mark.parametrize(("files", "message"), FOLDERS.values(), ids=FOLDERS)
def test_folders_that_are_not_complete_are_refused(hub, tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        push_folder(tmp_path, REPO, token=BOB)
    assert hub.requests == []
