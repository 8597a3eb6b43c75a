"""Every page of the site on a desktop and on a phone, and what its search finds."""

import ast
import re
import sys

import pytest

from tests.browser.checks import faults
from tests.documents.pages import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import make_messages

CONTRAST = {"runOnly": ["color-contrast"]}
NO_CONTRAST = {"rules": {"color-contrast": {"enabled": False}}}  # colours are the desktop's
LOOKS = {
    "desktop": ("desktop", "light", {}),
    "desktop, dark": ("desktop", "dark", CONTRAST),
    "phone": ("phone", "light", NO_CONTRAST),
}


@pytest.mark.parametrize("look", LOOKS)
def test_pages_fit_and_can_be_read_by_everybody(look, site, address, open_page):
    size, scheme, rules = LOOKS[look]
    page = open_page(size, color_scheme=scheme)
    wrong = {}
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 35
    for name in names:
        page.said.clear()
        page.goto(f"{address}/{name}", wait_until="load")
        if found := faults(page, **rules):
            wrong[name] = found
    assert not wrong


def test_the_first_page_sells_in_one_screen(address, open_page):
    page = open_page("desktop")
    page.goto(f"{address}/index.html")
    texts = ("pip install", "trainer.train()", "a step", "Which models", "Which trainers")
    for text in texts:
        box = page.locator("article").locator("pre, p, h2, th").filter(has_text=text).first.bounding_box()
        assert box["y"] + box["height"] <= 900, text
    assert page.locator("img").first.bounding_box()["y"] < 900


def test_wide_tables_are_cards_on_a_phone(address, open_page):
    page = open_page("phone")
    page.goto(f"{address}/troubleshooting.html", wait_until="load")
    cell = page.locator("table td").nth(2)
    assert cell.evaluate("each => getComputedStyle(each, '::before').content") == '"what to do"'
    assert page.locator("thead").first.is_hidden()


@pytest.fixture
def search(address, open_page):
    """`search(text)`: the addresses that the site's search gives, best first."""
    page = open_page()
    page.goto(f"{address}/index.html")
    page.get_by_role("button", name="Search").first.click()
    box = page.get_by_role("combobox", name="Search")

    def found(text: str) -> list[str]:
        results = page.get_by_role("option")
        box.fill("")
        results.first.wait_for(state="detached")
        box.fill(text)
        results.first.wait_for(timeout=5000)
        links = results.evaluate_all("links => links.map(link => link.href)")
        return [link.removeprefix(f"{address}/") for link in links]

    return found


@pytest.mark.parametrize(
    ("text", "page"), [("tiny model", ""), ("images cannot reach", "troubleshooting.html")]
)
def test_the_search_finds(text, page, search):
    assert any(link.startswith(page) for link in search(text))


def test_the_search_finds_error_messages(search):
    """Every twentieth, by the words between two values."""
    texts = [
        text
        for path in sorted(make_messages.SOURCE.rglob("*.py"))
        for text in make_messages.messages(ast.parse(path.read_text()))
    ]
    assert len(texts) > 500
    for text in texts[::20]:
        words = max(text.split(make_messages.GAP), key=len).split()[:12]
        query = re.sub(r"[^\w\s.'-]", " ", " ".join(words))
        assert any(link.startswith(("messages.html", "troubleshooting.html")) for link in search(query)), (
            query
        )
