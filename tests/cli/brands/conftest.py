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
def logos(cache):
    """The unpacked package of logos."""
    from examples.demo_brands.packages import LOGOS, fetch

    return fetch(LOGOS, cache)
