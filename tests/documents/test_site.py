"""The documentation site: built strictly, complete, and without anything from another machine.

What a browser shows of it: tests/browser.
"""

import html
import importlib
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.documents.pages import PAGES, ROOT

MODULES = ("hf_vlm_rl", "hf_vlm_rl.rewards", "hf_vlm_rl.evaluation", "hf_vlm_rl.data")


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe", "source", "video") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder with the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "docs/make_site.py", "--site", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Path to what it has, of every page but the one for addresses that do not exist."""
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_to_a_file_and_an_anchor(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link in ("#", "."):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append((path.name, link))
    assert len(pages) > 20
    assert not broken


def test_nothing_is_loaded_from_another_machine(pages, site):
    for path, page in pages.items():
        for source in page.loaded:
            parts = urlsplit(source)
            assert not parts.scheme, (path.name, source)
            assert not parts.netloc, (path.name, source)
            assert (path.parent / unquote(parts.path)).resolve().is_file(), (path.name, source)
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", path.read_text()), path.name


def test_every_page_is_in_the_site(pages, site):
    for name in PAGES:
        if name != "README.md":  # the site has a first page of its own
            where = Path(name.removeprefix("docs/"))
            built = where.with_name("index.html") if where.name == "README.md" else where.with_suffix(".html")
            assert site / built in pages, name


def test_every_page_of_docs_is_in_the_navigation():
    named = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")} <= named


def test_every_public_class_and_function_is_in_the_reference():
    named = set(re.findall(r"^::: (\S+)", "".join(p.read_text() for p in PAGES.values()), re.MULTILINE))
    missing = []
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            known = {f"{home}.{name}" for home in MODULES}
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and not known & named:
                missing.append(f"{module}.{name}")
    assert not missing


def shown(path: Path) -> str:
    """The text of a page as it is read."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def test_boxes_in_the_support_matrix_are_what_models_write(site):
    text = shown(site / "families.html")
    assert "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(0,0),(500,1000)<|box_end|>" in text
    assert "<ref>cat</ref><box>[[0, 0, 500, 1000]]</box>" in text
    assert "\\" not in text


def test_what_a_function_returns_is_one_item(site):
    pages = list((site / "api").glob("*.html"))
    lists = [
        match
        for path in pages
        for match in re.findall(
            r'doc-section-title">Returns:</span></p>\s*<ul>(.*?)</ul>', path.read_text(), flags=re.DOTALL
        )
    ]
    assert len(lists) > 20
    assert all(items.count('<li class="doc-section-item') == 1 for items in lists)
