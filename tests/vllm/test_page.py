"""docs/vllm.md has the figures that were recorded."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_what_runs_recorded():
    spec = spec_from_file_location("make_vllm", DOCS / "make_vllm.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text() == script.page(), "run `make docs`"
