"""Nothing that names a secret or a place of this machine is published."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_vlm_rl.hub import push_folder
from hf_vlm_rl.hub.leaks import check_leaks
from tests.hub.server import ALICE

HERE = str(Path(__file__).resolve())
LEAKS = {
    "the token": ("README.md", f"log in with {ALICE}", "value of a token"),
    "a secret of the environment": ("README.md", "key = abcd-efgh-1234", "value of a token"),
    "a token by its form": ("README.md", "hf_" + "a" * 34, "a Hugging Face token"),
    "a home directory": ("notes.txt", "see /home/somebody/data", "/home/somebody"),
    "a home directory of a Mac": ("notes.txt", "see /Users/somebody/data", "/Users/somebody"),
    "a file of this machine": ("config.json", json.dumps({"a": [{"b": HERE}]}), "of this machine"),
    "the working directory": ("README.md", f"in {Path.cwd()}/x", "of this machine"),
    "a token after a letter": ("README.md", "xhf_" + "a1" * 17, "a Hugging Face token"),
    "a token after an underscore": ("README.md", "run_hf_" + "a" * 34, "a Hugging Face token"),
    "a key after a letter": ("README.md", "mysk-proj-" + "aB3" * 20, "an API key"),
    "a key after an underscore": ("README.md", "key_sk-" + "aB3" * 16, "an API key"),
    "a GitHub token after an underscore": ("README.md", "git_ghp_" + "a1" * 18, "a GitHub token"),
    "a token behind escapes": ("config.json", '{"a": "\\u0068f_' + "a" * 34 + '"}', "a Hugging Face token"),
    "a token in a binary tokenizer": ("tokenizer.model", "\n\x25hf_" + "a" * 34, "a Hugging Face token"),
    **{
        name: ("README.md", f"see {value} for it", what)
        for name, value, what in (
            ("a token of OAuth", "hf_oauth_" + "eyJhbGciOi" * 4, "a Hugging Face token"),
            ("a token of an organisation", "api_org_" + "aB3" * 12, "a Hugging Face token"),
            ("a key of AWS", "AKIA" + "Z3JQ" * 4, "an AWS key"),
            ("a key of Google", "AIza" + "Sy3_x" * 7, "a Google key"),
            ("a token of Slack", "xoxb-" + "123456789012-abcdef", "a Slack token"),
            ("a token of GitLab", "glpat-" + "x1Y2" * 5, "a GitLab token"),
            ("a private key", "-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
            ("a password", "postgres://me:hunter2@db.example.org/x", "a password in an address"),
            ("a cluster's disk", "/scratch/me/run-3", "/scratch/me"),
            ("a mounted disk", "/mnt/data/me", "/mnt/data"),
            ("a file's address", "file:///srv/data/x.json", "file:///srv"),
        )
    },
    "a token in a vocabulary": ("tokenizer.json", json.dumps({ALICE: 1}), "value of a token"),
}
HARMLESS = {
    "words": (
        "README.md",
        "The user asked for a token; the host is at home. See https://example.org/house/x",
    ),
    "a template": ("chat_template.jinja", "{% for message in messages %}<|im_start|>user{% endfor %}"),
    "paths in a vocabulary": ("tokenizer.json", json.dumps({"/usr/bin": 1, "/home/user": 2})),
    "words with hyphens": ("README.md", "see task-specific-notes-on-the-risk-of-desk-work-2-and-more"),
    "a hash": ("README.md", "mask-0123456789abcdef0123456789abcdef01234567"),
    "an address": ("README.md", "https://example.org/mnt/x and https://user@example.org:8080/work/y"),
    "an address with a home": ("README.md", "photos of (https://example.org/home/data) and //cdn/x"),
    "words in capitals": ("README.md", "AKIAWORDWITHOUTANUMBER and AKIABCDEFGHIJKLMNOPQ"),
    "words that begin like a pickle": ("vocab.txt", "eat.\nthe\nbread\n"),
    "a tokenizer of tiktoken": ("tokenizer.model", "IQ== 0\nIg== 1\n"),
    "a root": ("config.json", json.dumps({"separator": "/"})),
}


@pytest.mark.parametrize(("name", "text", "what"), LEAKS.values(), ids=LEAKS)
def test_leaks_are_found_and_secrets_are_not_repeated(tmp_path, monkeypatch, name, text, what):
    monkeypatch.setenv("WANDB_API_KEY", "abcd-efgh-1234")
    (tmp_path / name).write_text(f"\n{text}" if name.endswith(".md") else text)
    with pytest.raises(ValueError, match=what) as caught:
        check_leaks([tmp_path / name], tmp_path, [ALICE])
    line = 1 if not name.endswith((".md", ".model")) else 2
    assert f"line {line}" in str(caught.value)
    assert ALICE not in str(caught.value)
    assert "abcd-efgh-1234" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), HARMLESS.values(), ids=HARMLESS)
def test_words_and_vocabularies_are_no_leaks(tmp_path, monkeypatch, name, text):
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.setenv("HF_TOKEN_PATH", "/home/user/token")
    (tmp_path / name).write_text(text)
    check_leaks([tmp_path / name], tmp_path, [ALICE, None])


def test_the_name_of_a_tokenizer_is_no_secret_and_the_root_no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENIZER_NAME", "Qwen/Qwen2.5-VL-3B-Instruct")
    monkeypatch.setenv("HOME", "/")
    (tmp_path / "README.md").write_text("Of https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct.")
    check_leaks([tmp_path / "README.md"], tmp_path)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"run": "hf_" + "a" * 34}, "a Hugging Face token"),
        ({"run": f"by {ALICE}"}, "value of a token"),
        ({ALICE: "run"}, "value of a token"),
        ({"from": "/home/somebody/data"}, "the path '/home/somebody'"),
        ({"from": HERE}, "of this machine"),
    ],
)
def test_leaks_in_the_metadata_of_weights_are_found(tmp_path, metadata, what):
    path = tmp_path / "adapter_model.safetensors"
    save_file({"a": torch.ones(1)}, path, metadata)
    with pytest.raises(ValueError, match=f"safetensors, metadata: holds .*{what}") as caught:
        check_leaks([path], tmp_path, [ALICE])
    assert ALICE not in str(caught.value)


def test_a_token_in_the_name_of_a_tensor_or_file_is_found(tmp_path):
    path = tmp_path / "adapter_model.safetensors"
    save_file({ALICE: torch.ones(1)}, path)
    with pytest.raises(ValueError, match="value of a token"):
        check_leaks([path], tmp_path, [ALICE])
    template = tmp_path / "additional_chat_templates" / f"{ALICE}.jinja"
    template.parent.mkdir()
    template.write_text("")
    with pytest.raises(ValueError, match=r"The name of a file in .*value of a token") as caught:
        check_leaks([template], tmp_path, [ALICE])
    assert ALICE not in str(caught.value)


def test_weights_with_usual_metadata_are_no_leak(tmp_path):
    path = tmp_path / "adapter_model.safetensors"
    tensors = {"base_model.model.a.lora_A.weight": torch.ones(2, dtype=torch.bfloat16), "n": torch.arange(3)}
    save_file(tensors, path, {"format": "pt"})
    check_leaks([path], tmp_path, [ALICE])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2])
def test_weights_that_are_not_finite_are_refused(tmp_path, value, dtype):
    path = tmp_path / "adapter_model.safetensors"
    save_file({"good": torch.ones(3), "bad": torch.tensor([1.0, value]).to(dtype)}, path)
    with pytest.raises(ValueError, match="the tensor 'bad' has values that are not finite"):
        check_leaks([path], tmp_path)


@pytest.mark.parametrize(
    "name", ["vocab.txt", "tokenizer.model", "config.json", "additional_chat_templates/a.jinja"]
)
def test_links_are_refused(tmp_path, name):
    folder, secret = tmp_path / "adapter", tmp_path / "elsewhere" / Path(name).name
    secret.parent.mkdir()
    secret.write_text("{}")
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(ValueError, match=r"is a link to .*elsewhere"):
        check_leaks([folder / name], folder)


def test_a_link_on_the_way_to_a_file_is_refused_and_one_to_the_folder_is_not(tmp_path):
    folder, elsewhere = tmp_path / "adapter", tmp_path / "elsewhere"
    for path in (folder, elsewhere):
        path.mkdir()
        (path / "a.jinja").write_text("")
    (folder / "additional_chat_templates").symlink_to(elsewhere)
    with pytest.raises(ValueError, match="additional_chat_templates is a link to"):
        check_leaks([folder / "additional_chat_templates" / "a.jinja"], folder)
    (tmp_path / "link").symlink_to(folder)
    check_leaks([tmp_path / "link" / "a.jinja"], tmp_path / "link")


@pytest.mark.parametrize("name", ["README.md", "card.json", "adapter_config.json"])
def test_a_push_writes_through_no_link(push, hub, tmp_path, name):
    folder, notes = tmp_path / "adapter", tmp_path / "notes"
    push()
    hub.received.clear()
    (folder / name).rename(notes)
    (folder / name).symlink_to(notes)
    before = notes.read_bytes()
    with pytest.raises(ValueError, match=f"{name} is a link to .*Nothing was uploaded"):
        push_folder(folder, "alice/adapter", card={"summary": "Another."}, base_revision="x", token=ALICE)
    assert (notes.read_bytes(), hub.received) == (before, [])


PICKLES = {
    **{f"protocol {number}": pickle.dumps({"a": [1, 2]}, number) for number in range(6)},
    "torch.save": b"PK\x03\x04" + b"\0" * 30,
}


NAMES = ("adapter_model.safetensors", "vocab.txt", "tokenizer.model", "tokenizer.json", "assets/curve.png")


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_under_another_name_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="which can run code when it is loaded"):
        check_leaks([path], tmp_path)


@pytest.mark.parametrize("prefix", [b"\n", b"\x00", b"x", b"\n\x04abcd"])
@pytest.mark.parametrize("content", [*PICKLES.values()][1:])
def test_what_stands_behind_a_byte_is_no_tokenizer(tmp_path, prefix, content):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(prefix + content)
    with pytest.raises(ValueError, match=r"tokenizer\.model (is no tokenizer|holds a)"):
        check_leaks([path], tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", b"\xff\xfe"),
        ("tokenizer.json", b"{"),
        ("assets/curve.png", b"<svg>"),
        ("adapter_model.safetensors", b"{}"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name} is (damaged or )?no "):
        check_leaks([path], tmp_path)


@pytest.mark.parametrize("damage", ["link", "pickle", "nan", "metadata"])
def test_nothing_of_a_folder_with_such_a_file_is_pushed(push, hub, tmp_path, damage):
    folder = tmp_path / "adapter"
    push()
    hub.received.clear()
    weights = folder / "adapter_model.safetensors"
    if damage == "link":
        (folder / "vocab.txt").symlink_to("/etc/passwd")
    elif damage == "pickle":
        (folder / "tokenizer.model").write_bytes(pickle.dumps(1))
    else:
        tensors = load_file(weights)
        tensors |= {name: tensor * float("nan") for name, tensor in tensors.items() if damage == "nan"}
        save_file(tensors, weights, {"run": ALICE} if damage == "metadata" else None)
    with pytest.raises(ValueError, match="Nothing was uploaded"):
        push_folder(folder, "alice/adapter", token=ALICE)
    assert hub.received == []


def test_a_card_with_a_local_path_is_not_pushed(push, hub, tmp_path):
    with pytest.raises(ValueError, match=r"README.md, line \d+: holds the path '/home/me'"):
        push(card={"data_notes": "From /home/me/photos."})
    assert not any("alice" in request for request in hub.requests)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
