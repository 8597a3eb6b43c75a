"""Every page of the site on a desktop and on a phone, and what its search finds."""

import pytest

from tests.browser.checks import faults


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_pages_fit_and_can_be_read_by_everybody(size, scheme, site, address, open_page):
    page = open_page(size, color_scheme=scheme)
    wrong = {}
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 35
    for name in names:
        page.said.clear()
        page.goto(f"{address}/{name}", wait_until="load")
        if found := faults(page):
            wrong[name] = found
    assert not wrong
