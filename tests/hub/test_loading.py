"""The whole circle: trained by stock GRPO, pushed, found on the Hub, loaded, the same model."""

import re
import subprocess

import pytest
import torch
from huggingface_hub import snapshot_download
from peft import PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy, push_adapter
from tests.hub.conftest import BASE, client_environment, python
from tests.hub.repositories import Blob
from tests.hub.server import ALICE
from tests.images import photo
from tests.loading.internvl_chat.golden import QWEN2, directory
from tests.trainers.test_saving import BLOCKS, encoded, logits

REPO = "alice/adapter"


def snippets(card):
    return re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)


@pytest.fixture
def pushed(push, hub, card):
    push(card=card)
    return hub.files(REPO)["README.md"].decode()


def test_what_is_downloaded_gives_the_logits_of_what_was_trained(
    pushed, trainer, bare_for, native_processor_for, tmp_path
):
    folder = snapshot_download(REPO, local_dir=tmp_path / "downloaded")
    loaded = PeftModel.from_pretrained(bare_for("internvl"), folder)
    inputs = encoded(native_processor_for("internvl"))
    expected = logits(trainer.model, inputs)
    assert torch.allclose(logits(loaded, inputs), expected, atol=1e-5)
    assert (expected - logits(bare_for("internvl"), inputs)).abs().max() > 1e-3


def test_the_processor_that_is_downloaded_is_the_native_one(pushed, native_processor_for, tmp_path):
    folder = snapshot_download(REPO, local_dir=tmp_path / "downloaded")
    loaded, native = AutoProcessor.from_pretrained(folder), native_processor_for("internvl")
    assert type(loaded) is type(native)
    assert loaded.chat_template == native.chat_template
    messages = [{"role": "user", "content": BLOCKS}]
    options = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "add_generation_prompt": True}
    given, expected = (one.apply_chat_template(messages, **options) for one in (loaded, native))
    assert torch.equal(given["input_ids"], expected["input_ids"])
    assert torch.equal(given["pixel_values"], expected["pixel_values"])


def test_a_policy_loads_from_the_repository_and_its_base_from_there(
    pushed, hub, trainer, native_processor_for
):
    hub.requests.clear()
    policy = AutoVLMPolicy.from_pretrained(REPO, dtype="float32")
    inputs = encoded(native_processor_for("internvl"))
    assert torch.allclose(logits(policy, inputs), logits(trainer.model, inputs), atol=1e-5)
    assert any(f"/{REPO}/resolve/" in request for request in hub.requests)


def test_the_snippets_for_a_base_in_its_authors_format_run(hub, tmp_path, monkeypatch):
    hub.add("org/original", {path.name: path.read_bytes() for path in directory(QWEN2).iterdir()})
    policy = AutoVLMPolicy.from_pretrained("org/original", dtype="float32")
    config = policy.lora_config(r=4, init_lora_weights=False)  # random ones: an adapter that does something
    push_adapter(get_peft_model(policy, config), REPO, output_dir=tmp_path / "adapter", token=ALICE)
    card = hub.files(REPO)["README.md"].decode()
    assert "AutoModelForImageTextToText" not in card
    monkeypatch.chdir(tmp_path)
    photo("coffee", (96, 64)).save("photo.jpg")
    exec(compile("\n".join(snippets(card)), "card.py", "exec"), {})
    AutoModelForImageTextToText.from_pretrained(tmp_path / "merged")


def test_the_commit_that_was_asked_for_is_the_one_that_is_recorded(hub):
    repository = hub.add("org/copy", hub.files(BASE))
    first = repository.head().oid
    repository.commit("main", "another", "org", {"NOTES.md": Blob(b"later", False)})
    assert AutoVLMPolicy.from_pretrained("org/copy").config._commit_hash == repository.head().oid != first
    old = AutoVLMPolicy.from_pretrained("org/copy", revision=first)
    assert old.config._commit_hash == first
    assert "_commit_hash" not in old.config.to_dict()


@pytest.mark.slow
def test_the_snippets_of_the_card_run(pushed, hub, tmp_path):
    photo("coffee", (96, 64)).save(tmp_path / "photo.jpg")
    blocks = snippets(pushed)
    assert len(blocks) == 3
    # A random model may answer with nothing: that it answers with a text is all there is to see.
    script = "\n".join(blocks) + "\nassert isinstance(policy.chat('Hm?', max_new_tokens=2), str)\n"
    (tmp_path / "card.py").write_text(script)
    done = subprocess.run(
        python("card.py"), cwd=tmp_path, env=client_environment(hub, tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert (tmp_path / "merged" / "processor_config.json").exists()
