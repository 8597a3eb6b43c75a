"""The pages of an evaluation and of a comparison, as people use them."""

import base64
import io

import pytest

from hf_vlm_rl.evaluation import EvaluationResult, compare
from hf_vlm_rl.evaluation.kept_rows import EvaluatedRow
from hf_vlm_rl.evaluation.result import RewardScores
from tests.browser.checks import faults
from tests.images import photo

NAMES = ("cat", "coffee", "rocket", "coins")


def thumbnail(name: str) -> str:
    file = io.BytesIO()
    photo(name, (160, 120)).save(file, "JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def result_of(*said: str) -> EvaluationResult:
    """Of a model that said so of the four photographs."""
    values = [float(text == name) for text, name in zip(said, NAMES, strict=True)]
    rows = tuple(
        EvaluatedRow(
            index, "What is it?", (said[index],), {"exact": (value,)}, (thumbnail(name),), {"answer": name}
        )
        for index, (name, value) in enumerate(zip(NAMES, values, strict=True))
    )
    scores = {"exact": RewardScores(tuple((value,) for value in values))}
    settings = {"num_generations": 1, "max_new_tokens": 8}
    return EvaluationResult(scores, tuple(NAMES), rows, {}, 0.0, 2.0, settings)


@pytest.fixture
def comparison(tmp_path):
    """Address of the page of two models, of which the second is better in two rows and worse in one."""
    before = result_of("cat", "tea", "a " + "very " * 60 + "long tower", "coins")
    compare(before, result_of("cat", "coffee", "rocket", "money")).save_html(tmp_path / "comparison.html")
    return (tmp_path / "comparison.html").as_uri()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_pages_fit_and_can_be_read_by_everybody(size, comparison, open_page, tmp_path):
    result_of(*NAMES).save_html(tmp_path / "page.html")
    for address in (comparison, (tmp_path / "page.html").as_uri()):
        page = open_page(size)
        page.goto(address)
        assert not faults(page)


def test_rows_are_filtered_by_a_click_and_by_the_keyboard(comparison, open_page):
    page = open_page()
    page.goto(comparison)
    shown = page.locator("article:visible")
    assert shown.count() == 4
    page.get_by_label("changed (3)").check()
    assert shown.count() == 3
    page.keyboard.press("ArrowRight")
    assert [text.splitlines()[0] for text in shown.all_inner_texts()] == ["row 1", "row 2"]  # better
    page.get_by_label("worse (1)").check()
    assert shown.all_inner_texts()[0].startswith("row 3")


def test_an_image_grows_to_the_window_and_shrinks_again(comparison, open_page):
    page = open_page()
    page.goto(comparison)
    image = page.get_by_role("img").first
    small = image.bounding_box()
    image.click()
    assert image.bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 900}
    page.keyboard.press("Space")  # the image keeps the focus
    assert image.bounding_box() == small


def test_right_and_wrong_differ_in_colour_and_in_sign(comparison, open_page):
    page = open_page()
    page.goto(comparison)
    before, after = page.locator("article").nth(1).locator(".completion").all()
    colours = [each.evaluate("each => getComputedStyle(each).borderLeftColor") for each in (before, after)]
    assert len(set(colours)) == 2
    signs = [
        each.locator(".rewards span").evaluate("each => getComputedStyle(each, '::before').content[1]")
        for each in (before, after)
    ]
    assert signs == ["\u2717", "\u2713"]
