"""What is wrong with a page that a browser shows."""

from axe_playwright_python.sync_playwright import Axe

AXE = Axe()
SEVERE = ("serious", "critical")
BESIDE = """() => {
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  if (wide <= 0) return [];
  const far = [...document.querySelectorAll("body *")].filter(
    (each) => each.getBoundingClientRect().right > window.innerWidth + 1);
  return [`${wide} px wider than the window`, ...far.slice(-3).map((each) => each.outerHTML.slice(0, 120))];
}"""
CUT = """() => [...document.querySelectorAll("pre > code")]
  .filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => code.textContent.slice(0, 80))"""

BROKEN = """() => [...document.querySelectorAll("article code")]
  .filter((code) => /^[\\w.]{1,30}$/.test(code.textContent) && code.getClientRects().length > 1)
  .map((code) => `broken: ${code.textContent}`)"""


def beside_the_page(page) -> list[str]:
    """Why the page scrolls sideways, or nothing."""
    return page.evaluate(BESIDE)


def cut_code(page) -> list[str]:
    """Blocks of code that are wider than their box."""
    return page.evaluate(CUT)


def broken_names(page) -> list[str]:
    """Names in a text that go on in the next line, though a phone has room for them."""
    return page.evaluate(BROKEN)


def barriers(page, **rules) -> list[str]:
    """What axe-core calls serious or critical, with the first places.

    Args:
        page: It is loaded.
        **rules: Options of axe-core; by default the rules of WCAG 2.1 A and AA run.
    """
    chosen = rules or {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
    found = AXE.run(page, options=chosen | {"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in SEVERE
    ]


def faults(page, **rules) -> list[str]:
    """Everything that is wrong with a loaded page; `rules` as for `barriers`."""
    shown = beside_the_page(page) + cut_code(page) + broken_names(page)
    return [*page.said, *shown, *barriers(page, **rules)]
