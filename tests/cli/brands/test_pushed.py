"""From training to a chat, by way of a Hub: what was pushed answers as what was trained."""

import json
import subprocess

import pytest

from tests.hub.conftest import client_environment, python
from tests.hub.server import ALICE, Hub

pytestmark = [pytest.mark.trl, pytest.mark.once, pytest.mark.slow]

CHAT = """
import json, sys
from PIL import Image
from hf_vlm_rl import AutoVLMPolicy

policy = AutoVLMPolicy.from_pretrained("alice/brands", dtype="float32")
question, *pictures = sys.argv[1:]
print(json.dumps([policy.chat(question, Image.open(path), max_new_tokens=8) for path in pictures]))
"""


def test_the_adapter_answers_after_a_push_as_before(joined, logos, tmp_path):
    from examples.demo_brands.measure import accuracy, answers
    from examples.demo_brands.splits import QUESTION, brand_rows, with_completions
    from examples.demo_brands.train import warm_up
    from hf_vlm_rl import AutoVLMPolicy, save_adapter

    policy = AutoVLMPolicy.from_pretrained(joined, dtype="float32")
    trainer = warm_up(policy, with_completions(brand_rows(logos, 32, "labelled", 0)), 2, 0, tmp_path)
    save_adapter(trainer, tmp_path / "adapter")
    rows = brand_rows(logos, 3, "held_out", 0)
    pictures = [str(tmp_path / f"{row}.png") for row in range(3)]
    for picture, image in zip(pictures, rows["image"], strict=True):
        image.save(picture)

    with Hub() as hub:
        hub.add("alice/base", {path.name: path.read_bytes() for path in joined.iterdir()})
        environment = client_environment(hub, tmp_path) | {"HF_TOKEN": ALICE}

        def run(*arguments):
            done = subprocess.run(
                python(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        push = ("push", str(tmp_path / "adapter"), "alice/brands", "--base-model", "alice/base")
        run("-m", "hf_vlm_rl.cli", *push)
        chats = json.loads(run("-c", CHAT, QUESTION, *pictures).splitlines()[-1])
    assert [text.strip() for text in chats] == answers(accuracy(trainer.model, rows))
