"""Which tests are slow, in which order they run, from which seed they draw: hooks of tests/conftest.py."""

import gc
import random
import re
from collections import defaultdict

import hypothesis
import numpy as np
import pytest
import torch
import transformers
from packaging.specifiers import SpecifierSet

# One class of each kind: tiles, positions in three dimensions, two attentions, a prefix that sees itself,
# recurrent layers. `make test` runs what is tested for many classes on these, `make test-slow` on the others.
KINDS = ("internvl", "qwen2_5_vl", "gemma3", "paligemma", "qwen3_5")
# Classes that older versions of transformers do not have.
ABSENT = {
    "minicpm_ocr": "<5.21",
    "mistral_large4": "<5.22",
    **dict.fromkeys(("dots3_note", "granite_docling", "inkling2", "lfm3_vl"), "<5.23"),
}
# What stock cannot do on older versions of transformers: the versions, a pattern in a test's id, the reason.
NOT_IN_STOCK = (
    (">5.20.0,<5.21", r"\[.*smolvlm", "its forward takes multiples of patch_size only; refused by name"),
    ("<5.21", r"keep_their_order\[smolvlm", "its forward fails on a video beside an image of one row"),
    ("<5.23", r"path_equals_stocks_call_on_the_path\[.*EXIF", "it turns no path"),
    ("<5.23", r"\[.*nemotron_h_omni", "its feature extractor needs librosa"),
    *((versions, name, f"it has no {name}") for name, versions in ABSENT.items()),
)
# A test that names fewer classes has chosen them.
MANY = 6


def model_type_of(item: pytest.Item) -> str | None:
    """The class that a test is for, where it is parametrised over classes."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("family", params.get("model_type"))


def mark_other_classes_slow(items: list[pytest.Item]) -> None:
    """Mark the cases of tests over many classes slow, except for those of `KINDS`."""
    classes = defaultdict(set)
    for item in items:
        classes[item.function].add(model_type_of(item))
    for item in items:
        chosen = classes[item.function]
        if len(chosen) >= MANY and chosen & set(KINDS) and model_type_of(item) not in KINDS:
            item.add_marker(pytest.mark.slow)


def skip_what_stock_cannot(items: list[pytest.Item]) -> None:
    """Skip what has nothing to be compared with on the installed transformers."""
    for versions, pattern, reason in NOT_IN_STOCK:
        if SpecifierSet(versions).contains(transformers.__version__, prereleases=True):
            for item in items:
                if re.search(pattern, item.nodeid):
                    item.add_marker(pytest.mark.skip(reason=f"transformers {versions}: {reason}"))


def bring_classes_together(items: list[pytest.Item]) -> None:
    """Order the tests that load `twins` by class: loading takes longer than what most of them compare."""
    places = [place for place, item in enumerate(items) if "twins" in item.fixturenames]
    found = [items[place] for place in places]
    first = {}
    for item in found:
        first.setdefault(model_type_of(item), len(first))
    for place, item in zip(places, sorted(found, key=lambda item: first[model_type_of(item)]), strict=True):
        items[place] = item


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_other_classes_slow(items)
    skip_what_stock_cannot(items)
    bring_classes_together(items)
    seed = config.getoption("seed")
    for item in items:
        if seed and hypothesis.is_hypothesis_test(item.function):
            hypothesis.seed(seed)(item.function)


def pytest_collection_finish() -> None:
    # Every `train()` collects garbage, and would walk through all modules and collected tests each time.
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="of draws and tiny checkpoints (default: 0)")


def _draw_from(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


# Before the fixtures, and again before the test, which so draws the same whoever ran before it.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _draw_from(item.config.getoption("seed"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _draw_from(item.config.getoption("seed"))
