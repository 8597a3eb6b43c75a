"""Nothing that names a secret or a place of this machine is published."""

import json
from pathlib import Path

import pytest

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
    "a token in a vocabulary": ("tokenizer.json", json.dumps({ALICE: 1}), "value of a token"),
}
HARMLESS = {
    "words": (
        "README.md",
        "The user asked for a token; the host is at home. See https://example.org/house/x",
    ),
    "a template": ("chat_template.jinja", "{% for message in messages %}<|im_start|>user{% endfor %}"),
    "paths in a vocabulary": ("tokenizer.json", json.dumps({"/usr/bin": 1, "/home/user": 2})),
    "a root": ("config.json", json.dumps({"separator": "/"})),
}


@pytest.mark.parametrize(("name", "text", "what"), LEAKS.values(), ids=LEAKS)
def test_leaks_are_found_and_secrets_are_not_repeated(tmp_path, monkeypatch, name, text, what):
    monkeypatch.setenv("WANDB_API_KEY", "abcd-efgh-1234")
    (tmp_path / name).write_text(f"\n{text}" if name.endswith(".md") else text)
    with pytest.raises(ValueError, match=what) as caught:
        check_leaks([tmp_path / name], tmp_path, [ALICE])
    assert f"line {2 if name.endswith('.md') else 1}" in str(caught.value)
    assert ALICE not in str(caught.value)
    assert "abcd-efgh-1234" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), HARMLESS.values(), ids=HARMLESS)
def test_words_and_vocabularies_are_no_leaks(tmp_path, monkeypatch, name, text):
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.setenv("HF_TOKEN_PATH", "/home/user/token")
    (tmp_path / name).write_text(text)
    check_leaks([tmp_path / name], tmp_path, [ALICE, None])


def test_a_card_with_a_local_path_is_not_pushed(push, hub, tmp_path):
    with pytest.raises(ValueError, match=r"README.md, line \d+: holds the path '/home/me'"):
        push(card={"data_notes": "From /home/me/photos."})
    assert not any("alice" in request for request in hub.requests)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
