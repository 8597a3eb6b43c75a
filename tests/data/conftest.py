"""A cache and a folder of photos for each test."""

import datasets
import pytest

from tests.data.files import NAMES
from tests.images import photo


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """The cache of `datasets`, empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder with small photos of different sizes."""
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(NAMES):
        photo(name.removesuffix(".png"), (24 + 8 * number, 32)).save(folder / name)
    return folder
