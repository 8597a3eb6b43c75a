"""Every page of the site on a desktop and on a phone, and what its search finds."""

import ast
import re

import pytest
from playwright.sync_api import TimeoutError

from tests.browser.checks import faults
from tests.documents.pages import script

make_messages = script("make_messages")

CONTRAST = {"runOnly": ["color-contrast"]}
NO_CONTRAST = {"rules": {"color-contrast": {"enabled": False}}}  # colours are the desktop's
SOME = ("index.html", "quickstart.html", "families.html", "api/policies.html", "model_cards/index.html")
LOOKS = {
    "desktop": ("desktop", "light", {}, ()),
    "dark": ("desktop", "dark", CONTRAST, SOME),  # colours are the same elsewhere
    "phone": ("phone", "light", NO_CONTRAST, ()),
}


@pytest.mark.parametrize("look", LOOKS)
def test_pages_fit_and_can_be_read_by_everybody(look, site, address, open_page):
    size, scheme, rules, some = LOOKS[look]
    page = open_page(size, color_scheme=scheme)
    wrong = {}
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 35
    for name in some or names:
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
def finds(address, open_page):
    """`finds(text, *pages)`: does the site's search list one of the pages among its first results?"""
    page = open_page()
    page.goto(f"{address}/index.html")
    page.get_by_role("button", name="Search").first.click()
    box = page.get_by_role("combobox", name="Search")

    def found(text: str, *pages: str, patience: int = 10_000) -> bool:
        box.fill(text)
        links = ", ".join(f"a[role=option][href^='{address}/{each}']" for each in pages)
        try:
            page.locator(links).first.wait_for(timeout=patience)
        except TimeoutError:
            return False
        return True

    return found


def test_the_search_finds_what_people_look_for(finds):
    assert finds("tiny model", "")
    assert finds("images cannot reach", "troubleshooting.html")


def test_the_search_finds_error_messages(finds):
    """Every fifth, by the words between two values; "and the base" alone leads anywhere."""
    texts = [
        text
        for path in sorted(make_messages.SOURCE.rglob("*.py"))
        for text in make_messages.messages(ast.parse(path.read_text()))
    ]
    assert len(texts) > 500
    asked = [max(text.split(make_messages.GAP), key=len).split()[:12] for text in texts[::5]]
    queries = [re.sub(r"[^\w\s.'-]", " ", " ".join(words)) for words in asked]
    pages = ("messages.html", "troubleshooting.html")
    missed = [query for query in queries if not finds(query, *pages, patience=3_000)]
    assert len(missed) <= len(queries) // 50, missed
