"""The documents say what the code does."""

import re

import pytest
import transformers
from packaging.version import Version

import hf_vlm_rl
from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.every import CLAIMED
from tests.documents.pages import PAGES, blocks, script

ALL = pytest.mark.parametrize("name", PAGES)


@pytest.mark.slow
def test_the_support_matrix_is_what_the_table_gives():
    made = script("make_families")
    assert made.PAGE.read_text() == made.page(), "run `make docs`"


def test_every_class_of_transformers_is_listed_once():
    from hf_vlm_rl.families import FAMILIES as table
    from hf_vlm_rl.loading.stock import CHAT_MODELS

    assert set(table) == set(FAMILIES)
    listed = re.findall(
        r"^\| `((?!model_type)[\w.-]+)` \|", PAGES["docs/families.md"].read_text(), flags=re.MULTILINE
    )
    installed = Version(transformers.__version__)
    since = script("make_families").SINCE
    newer = {name for name, release in since.items() if installed < Version(release)}
    assert sorted(listed) == sorted({*CHAT_MODELS, *newer})


def test_the_readme_counts_the_classes():
    assert f"{len(CLAIMED)} classes" in PAGES["README.md"].read_text()


@ALL
def test_every_fence_is_a_block_of_a_known_language(name):
    """Or a block could be overlooked, and not be run."""
    text = PAGES[name].read_text()
    found = blocks(text)
    assert len(re.findall(r"^\s*```", text, flags=re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= {"python", "bash", "text", "toml", "json", "yaml"}


def test_hardly_any_python_is_not_run():
    found = [block for path in PAGES.values() for block in blocks(path.read_text())]
    python = [block for block in found if block.language == "python"]
    assert len(python) > 25
    assert sum(block.not_run is not None for block in python) < 3


@ALL
def test_relative_links_lead_somewhere(name):
    path = PAGES[name]
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), target


@ALL
def test_the_first_line_says_for_whom_the_page_is(name):
    lines = [line for line in PAGES[name].read_text().splitlines() if re.match(r"[A-Z]", line)]
    assert lines[0].startswith("For "), lines[0]


@ALL
def test_a_link_is_named_by_its_page_and_not_by_a_file(name):
    assert re.findall(r"\[[^\]\s]*\.md\]\(", PAGES[name].read_text()) == []


def test_every_public_name_is_documented():
    for name in hf_vlm_rl.__all__:
        assert getattr(hf_vlm_rl, name).__doc__, name
