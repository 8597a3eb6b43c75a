"""Every page of the site on a desktop and on a phone, and what its search finds."""

import re

import pytest
from playwright.sync_api import TimeoutError

import hf_vlm_rl
from tests.browser.checks import beside_the_page, faults
from tests.browser.conftest import HOST
from tests.documents.pages import script

make_messages = script("make_messages")

CONTRAST = {"runOnly": ["color-contrast"]}
NO_CONTRAST = {"rules": {"color-contrast": {"enabled": False}}}  # colours are the desktop's
SOME = ("index.html", "quickstart.html", "families.html", "api/policies.html", "model_cards/index.html")
LOOKS = {
    "desktop": ("desktop", "light", {}, ()),
    "dark": ("desktop", "dark", CONTRAST, ()),
    "phone": ("phone", "light", NO_CONTRAST, ()),
    "dark phone": ("phone", "dark", {}, SOME),  # colours are those of the desktop
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_first_page_leads_everywhere(size, scheme, address, open_page):
    """Its navigation, on a phone behind a button, names pages and the repository; its header the version."""
    page = open_page(size, color_scheme=scheme)
    page.goto(f"{address}/index.html")
    assert page.locator("header").get_by_text(f"hf_vlm_rl {hf_vlm_rl.__version__}").first.is_visible()
    if size == "phone":
        page.locator("header label[for=__drawer]").click()
    navigation = page.locator("nav.md-nav--primary")
    repository = navigation.get_by_role("link", name="Repository")
    repository.wait_for()
    assert repository.get_attribute("href") == "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format(**HOST)
    navigation.get_by_role("link", name="Quickstart").click()
    page.get_by_role("heading", name="Quickstart").wait_for()


SCHEMES = {"light": ("default", "Dark", "slate"), "dark": ("slate", "Light", "default")}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_readers_can_choose_the_other_colours_for_all_pages(scheme, address, open_page):
    first, button, other = SCHEMES[scheme]
    page = open_page("desktop", color_scheme=scheme)
    page.goto(f"{address}/index.html")
    colours = page.locator("body")
    assert colours.get_attribute("data-md-color-scheme") == first
    page.locator(f"label[title={button}]").click()
    assert colours.get_attribute("data-md-color-scheme") == other
    page.goto(f"{address}/adapters.html")
    assert colours.get_attribute("data-md-color-scheme") == other
    assert faults(page, **CONTRAST) == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_what_the_search_shows_can_be_followed(size, scheme, address, open_page):
    """axe-core is not asked: this widget is Zensical's, and no style sheet reaches its colours."""
    page = open_page(size, color_scheme=scheme)
    page.goto(f"{address}/index.html")
    if size == "phone":
        page.locator("header label[for=__search]").click()
    else:
        page.get_by_role("button", name="Search").first.click()
    page.get_by_role("combobox", name="Search").fill("changes nothing")
    result = page.locator(f"a[role=option][href^='{address}/troubleshooting.html']").first
    result.wait_for()
    assert [*page.said, *beside_the_page(page)] == []
    result.click()
    page.wait_for_url("**/troubleshooting.html*")


def test_wide_tables_are_cards_on_a_phone(address, open_page):
    page = open_page("phone")
    page.goto(f"{address}/troubleshooting.html", wait_until="load")
    cell = page.locator("table[data-cards] td").nth(2)
    assert cell.evaluate("each => getComputedStyle(each, '::before').content") == '"what to do"'
    assert page.locator("table[data-cards] thead").first.is_hidden()


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


WORDS = {
    "OOM": "memory.html",
    "VRAM": "memory.html",
    "out of memory": "memory.html",
    "waits for ever": "troubleshooting.html",
    "upload": "hub.html",
    "grounding": "rewards.html",
    "OCR": "rewards.html",
    "collapse": "diagnosis.html",
    "merge": "adapters.html",
    "slow": "performance.html",
    "multi-node": "examples/",
    "image features and image tokens do not match": "errors.html",
    "NCCL timeout": "errors.html",
    "migrate": "migrate.html",
    "ms-swift": "migrate.html",
    "VLM-R1 yaml": "migrate.html",
}


def test_the_search_knows_other_words(finds):
    assert [word for word, page in WORDS.items() if not finds(word, page, patience=3_000)] == []


def test_the_search_finds_error_messages(finds):
    """By the words between two values. One in fifty may be missed: "Evaluation of" alone leads anywhere."""
    texts = [text for listed in make_messages.by_symptom().values() for text in listed]
    assert len(texts) > 500
    asked = [max(text.split(make_messages.GAP), key=len).split()[:12] for text in texts]
    queries = [re.sub(r"[^\w\s.'-]", " ", " ".join(words)) for words in asked]
    pages = ("messages.html", "troubleshooting.html")
    missed = [query for query in queries if not finds(query, *pages, patience=3_000)]
    assert len(missed) <= len(queries) // 50, missed
