"""Results: tables, files, pages and comparisons."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from hf_vlm_rl import AdapterCardData
from hf_vlm_rl.evaluation import EvaluationResult, compare, evaluate
from hf_vlm_rl.evaluation.kept_rows import EvaluatedRow, reference_texts
from hf_vlm_rl.evaluation.result import RewardScores
from tests.evaluation.rows import OPTIONS, mixture, short, starts

ATTACK = "<script>alert(1)</script> {{ 7 * 7 }} $\\frac{1}$ | a\n| b"


def result_of(rows=10, said="", **values):
    """A result with one completion per row."""
    rewards = {name: RewardScores(tuple((value,) for value in own)) for name, own in values.items()}
    kept = tuple(
        EvaluatedRow(index, said, (said,), {name: of.values[index] for name, of in rewards.items()})
        for index in range(rows)
    )
    settings = {"num_generations": 1, "max_new_tokens": 5}
    return EvaluationResult(rewards, tuple(map(str, range(rows))), kept, {}, 0.25, 3.0, settings)


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.sources, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_data(self, data):
        self.words.append(data)


def test_the_table_shows_means_intervals_and_how_they_were_made(sampled, greedy):
    head, _, first, second, _, about = sampled.table().splitlines()
    assert head == "| reward | n | mean | pass@1 | pass@2 | pass@4 | interval |"
    mean = sampled.rewards["short"].mean
    assert first.startswith(f"| short | 5 | {mean.value:.3f} [{mean.interval[0]:.3f}, ")
    assert second.startswith("| starts | 4 |")
    assert "| - | - | - | n < 20 |" in second
    assert about == "5 rows, 4 completion(s) each, 100% cut at 5 tokens; [95 %]."
    assert str(greedy) == greedy.table()


def test_a_result_is_the_same_after_saving_and_loading(sampled, tmp_path):
    sampled.save(tmp_path / "result.json")
    loaded = EvaluationResult.load(tmp_path / "result.json")
    assert loaded == sampled
    assert loaded.table() == sampled.table()
    failed = dataclasses.replace(sampled, failures={7: "why"})
    failed.save(tmp_path / "result.json")
    assert EvaluationResult.load(tmp_path / "result.json") == failed


@pytest.mark.parametrize("content", ["{", "[]", '{"rewards": {}}', '{"rewards": {"a": 1}}'])
def test_a_file_that_is_no_result_is_refused(content, tmp_path):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=r"result.json cannot be read .* that EvaluationResult.save wrote"):
        EvaluationResult.load(tmp_path / "result.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content["rewards"]["short"].update(threshold="a"),
        lambda content: content["rewards"]["short"]["values"].pop(),
        lambda content: content["rewards"]["short"]["values"][0].append("x"),
        lambda content: content["rewards"]["short"]["values"][0].append([1]),
        lambda content: content["settings"].clear(),
    ],
)
def test_a_damaged_result_is_refused_when_it_is_read(greedy, damage, tmp_path):
    path = tmp_path / "result.json"
    greedy.save(path)
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"result.json cannot be read"):
        EvaluationResult.load(path)


def test_the_page_shows_what_a_model_wrote_as_text(tmp_path):
    result_of(rows=2, said=ATTACK, **{"<b>r": [1.0, None]}).save_html(tmp_path / "page.html")
    page = Tags((tmp_path / "page.html").read_text())
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert page.words.count(ATTACK) == 4
    assert "<b>r: 1" in page.words
    assert "<b>r: -" in page.words


def test_the_page_stands_alone(greedy, tmp_path):
    greedy.save_html(tmp_path / "page.html")
    page = Tags((tmp_path / "page.html").read_text())
    assert len(page.sources) == 4  # one image, one in the message, two
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.sources)
    lines = {line for words in page.words for line in words.splitlines()}
    assert all(lines.issuperset(row.completions[0].splitlines()) for row in greedy.rows)
    assert page.tags.count("article") == 5


class Articles(HTMLParser):
    """Per row of a page: its classes, the classes of its completions, its words."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.cells, self.filters, self.inside = [], [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        classes = (dict(attrs).get("class") or "").split()
        if tag == "article":
            self.rows.append((set(classes) - {"row"}, [], []))
        elif "completion" in classes:
            self.rows[-1][1].append(" ".join(classes[1:]))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None if tag in ("td", "th") else self.inside

    def handle_data(self, data):
        if self.inside == "label" and "(" in data:
            name, _, count = data.partition(" (")
            self.filters[name] = int(count.rstrip(")"))
        elif self.inside in ("td", "th"):
            self.cells.append(data)
        elif self.rows:
            self.rows[-1][2].append(data)


def test_the_page_colours_right_and_wrong_and_filters_them(tmp_path):
    result = result_of(rows=4, exact=[1.0, 0.0, None, 1.0], close=[0.9, 0.2, 0.3, 0.4])
    result.save_html(tmp_path / "page.html")
    page = Articles((tmp_path / "page.html").read_text())
    assert [row[1] for row in page.rows] == [["right"], ["wrong"], [""], ["right"]]  # close is graded
    assert page.filters == {"all": 4, "right": 2, "wrong": 1}
    close = dataclasses.replace(result.rewards["close"], threshold=0.5)
    strict = dataclasses.replace(result, rewards=result.rewards | {"close": close})
    strict.save_html(tmp_path / "page.html")
    page = Articles((tmp_path / "page.html").read_text())
    assert [row[1] for row in page.rows] == [["right"], ["wrong"], ["wrong"], ["wrong"]]


def test_the_comparison_page_filters_the_rows_that_changed(tmp_path):
    before = result_of(rows=4, exact=[0.0, 1.0, 1.0, None], close=[0.5, 0.5, 0.5, 0.5])
    after = result_of(rows=4, exact=[1.0, 0.0, 1.0, 1.0], close=[0.5, 0.6, 0.5, 0.5])
    compare(before, after).save_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = Articles(text)
    assert [row[0] for row in page.rows] == [
        {"changed", "better"},
        {"changed", "better", "worse"},
        set(),
        set(),
    ]
    assert page.filters == {"all": 4, "changed": 2, "better": 2, "worse": 1}
    verdicts = [row[1] for row in page.rows]
    assert verdicts == [["wrong", "right"], ["right", "wrong"], ["right", "right"], ["", "right"]]
    for mark in ("changed", "better", "worse"):
        assert f'id="show-{mark}"' in text
        assert f"body:has(#show-{mark}:checked) .row:not(.{mark}) {{ display: none; }}" in text
    assert "<script" not in text


def test_a_reward_that_is_graded_on_one_side_colours_neither(tmp_path):
    compare(result_of(rows=2, r=[0.0, 1.0]), result_of(rows=2, r=[0.5, 1.0])).save_html(
        tmp_path / "page.html"
    )
    page = Articles((tmp_path / "page.html").read_text())
    assert [row[1] for row in page.rows] == [["", ""], ["", ""]]


def test_the_summary_is_a_table_with_the_cells_of_the_markdown(tmp_path):
    result = result_of(rows=2, **{"a|b": [1.0, 0.0]})
    result.save_html(tmp_path / "page.html")
    page = Articles((tmp_path / "page.html").read_text())
    head, _, line = result.table().splitlines()[:3]
    columns = [text.strip() for text in head.strip("| ").split(" | ")]
    cells = [text.strip().replace("\\|", "|") for text in line.strip("| ").split(" | ")]
    assert page.cells == columns + cells


def test_the_reference_answer_is_kept_and_shown(greedy, tmp_path):
    assert [row.reference for row in greedy.rows] == [{"answer": letter} for letter in "aeiou"]
    greedy.save_html(tmp_path / "page.html")
    page = Articles((tmp_path / "page.html").read_text())
    assert all(
        {"answer", f" {letter}"} <= set(row[2]) for row, letter in zip(page.rows, "aeiou", strict=True)
    )


def test_references_are_texts_of_what_has_one():
    columns = {
        "images": ["x"],
        "image": "x",
        "answer": "A cat.",
        "boxes": [[1, 2, 3, 4]],
        "none": None,
        "array": np.arange(2),
        "object": object(),
        "long": "x" * 3000,
    }
    texts = reference_texts(columns)
    assert texts["answer"] == "A cat."
    assert (texts["boxes"], texts["array"]) == ("[[1, 2, 3, 4]]", "[0, 1]")
    assert (set(texts), len(texts["long"])) == ({"answer", "boxes", "array", "long"}, 2004)


def test_a_result_of_an_older_version_has_no_references(tmp_path):
    result_of(rows=1, r=[1.0]).save(tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_text())
    del content["rows"][0]["reference"]
    (tmp_path / "result.json").write_text(json.dumps(content))
    assert EvaluationResult.load(tmp_path / "result.json").rows[0].reference == {}


def test_only_the_first_rows_are_kept_with_small_images(shared_policy):
    result = evaluate(shared_policy, mixture(), short, keep_rows=2, **OPTIONS)
    assert (len(result.rows), result.n) == (2, 5)
    assert [len(row.images) for row in result.rows] == [1, 0]
    assert len(result.rows[0].images[0]) < 20_000


def test_a_comparison_pairs_rows():
    before = result_of(20, right=[0.0] * 6 + [1.0] * 14, score=[0.1 * row for row in range(20)])
    after = result_of(
        20, right=[1.0] * 5 + [0.0] + [1.0] * 13 + [0.0], score=[0.1 * row + 0.2 for row in range(20)]
    )
    found = compare(before, after).rewards
    assert (found["right"].better, found["right"].worse) == (5, 1)
    assert found["right"].difference.value == pytest.approx(0.2)
    assert found["right"].p_value == pytest.approx(2 * 7 / 2**6)
    assert found["right"].difference.method == "bonett-price"
    # Each row rose by the same: paired, the difference has no spread, though the rows differ.
    assert found["score"].difference.interval == pytest.approx((0.2, 0.2))
    assert found["score"].p_value is None


def test_rows_without_a_value_on_either_side_are_left_out():
    before, after = result_of(rows=3, r=[None, 0.5, 1.0]), result_of(rows=3, r=[1.0, None, 0.25])
    change = compare(before, after).rewards["r"]
    assert (change.difference.n, change.before.value, change.after.value) == (1, 1.0, 0.25)
    nothing = compare(result_of(rows=1, r=[None]), result_of(rows=1, r=[1.0]))
    assert "| r | 0 | - | - | - | 0 / 0 | - |" in nothing.table()
    assert nothing.evaluations("D") == []


def test_a_comparison_is_what_the_card_shows(greedy, sampled, tmp_path):
    found = compare(greedy, sampled)
    evaluations = found.evaluations("Mixture", metrics={"short": "accuracy"}, split="test")
    assert [(item.metric, item.n, item.split) for item in evaluations] == [
        ("accuracy", 5, "test"),
        ("starts", 4, "test"),
    ]
    assert evaluations[0].before == greedy.rewards["short"].mean.value
    assert evaluations[0].after_ci == sampled.rewards["short"].mean.interval
    results = AdapterCardData(evaluations=evaluations).metadata()["model-index"][0]["results"]
    assert [metric["name"] for metric in results[0]["metrics"]] == ["accuracy", "starts"]
    with pytest.raises(ValueError, match=r"Got no dataset for \['short', 'starts'\]"):
        found.evaluations()
    (alone, _) = sampled.evaluations("Mixture")
    assert (alone.before, alone.after) == (None, evaluations[0].after)
    found.save_html(tmp_path / "page.html")
    words = Tags((tmp_path / "page.html").read_text()).words
    assert (words.count("before"), words.count("after")) == (1 + 5, 1 + 20)  # headings of the summary
    assert re.search(r"better / worse", "".join(words))


def test_results_of_other_settings_are_compared_with_a_warning(recwarn):
    before, after = result_of(short=[0.0] * 10), result_of(short=[1.0] * 10)
    compare(before, dataclasses.replace(after, settings=before.settings | {"seed": 1, "batch_size": 2}))
    assert not recwarn
    other = dataclasses.replace(after, settings=before.settings | {"max_new_tokens": 9, "temperature": 1.2})
    with pytest.warns(UserWarning, match=r"other max_new_tokens \(5 and 9\), temperature \(None and 1\.2\)"):
        assert compare(before, other).rewards["short"].better == 10


def test_results_of_other_rows_are_not_compared(greedy, shared_policy):
    other = evaluate(shared_policy, mixture()[::-1], [short, starts], **OPTIONS)
    with pytest.raises(ValueError, match="the first that differ: 0"):
        compare(greedy, other)
    with pytest.raises(ValueError, match="Expected one in both"):
        compare(result_of(a=[1.0] * 10), result_of(b=[1.0] * 10))
