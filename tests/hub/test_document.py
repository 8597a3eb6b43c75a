"""The scripts of docs/hub.md run as they stand, under a name that the test's token owns."""

import re
from pathlib import Path

from tests.hub.server import ALICE

PAGE = (Path(__file__).parent.parent.parent / "docs" / "hub.md").read_text()


def test_the_scripts_push(hub, trainer, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", ALICE)
    monkeypatch.setattr(trainer, "push_to_hub", trainer.push_to_hub)  # the scripts set it: undone afterwards
    monkeypatch.setattr(trainer.args, "hub_model_id", "alice/other")
    first, second = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    script = first.replace("trainer.train()", "").replace('"user/', '"alice/')
    exec(compile(script, "hub.md", "exec"), {"trainer": trainer})
    assert "| Digits, held out | accuracy | 500 |" in hub.files("alice/adapter")["README.md"].decode()
    exec(compile(second, "hub.md", "exec"), {"trainer": trainer})
    assert "Reads handwritten digits." in hub.files("alice/other")["README.md"].decode()
