"""docs/vllm.md has the figures that were recorded."""

from tests.documents.pages import script


def test_the_tables_are_what_runs_recorded():
    made = script("make_vllm")
    assert made.PAGE.read_text() == made.page(), "run `make docs`"
