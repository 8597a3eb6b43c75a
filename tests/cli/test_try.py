"""`hf-vlm-rl try` without what it needs; the page itself is tried in tests/browser."""

import sys

from hf_vlm_rl.cli import commands as cli


def test_without_gradio_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["try", "adapter"]) == 1
    assert "pip install '.[ui]'" in capsys.readouterr().err
