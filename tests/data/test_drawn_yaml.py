"""Mixtures and cards with drawn YAML: read, or refused in words."""

import random

import pytest
import yaml

from hf_vlm_rl import DataError
from hf_vlm_rl.data import bounded_yaml, load_mixture
from hf_vlm_rl.hub.cards.merge import merge
from hf_vlm_rl.hub.cards.render import render
from model_cards.make import grpo

pytestmark = pytest.mark.slow
PIECES = (
    *("datasets:", "- ", "  ", "\n", "json_path: ", "rows.jsonl", "name: ", "sampling_strategy: ", "first:1"),
    *("&a ", "*a", "<<: ", "!!python/object:os.system ", "!!binary ", "!!timestamp ", "!!set ", "!!float "),
    *("{", "}", "[", "]", ", ", "? ", ": ", "| ", "> ", "'", '"', "#", "---", "...", "%YAML 9.9", "\t"),
    *(
        "0x",
        "1e999",
        ".nan",
        "~",
        "2020-99-99",
        "\u2028",
        "\x00",
        "é",
        "a" * 99,
        "image_folder: ",
        "format: ",
    ),
)


def drawn(rng: random.Random) -> str:
    start = rng.choice(
        ["", "datasets:\n  - json_path: rows.jsonl\n    ", "datasets: [", "x: &a [1]\ndatasets: "]
    )
    return start + "".join(rng.choices(PIECES, k=rng.randrange(1, 24)))


def test_drawn_mixtures_are_read_or_refused(tmp_path):
    rng, refused = random.Random(0), 0
    turns = '[{"from": "human", "value": "A?"}, {"from": "gpt", "value": "a"}]'
    (tmp_path / "rows.jsonl").write_text(f'{{"conversations": {turns}}}\n')
    for _ in range(2000):
        (tmp_path / "mixture.yaml").write_text(drawn(rng))
        try:
            load_mixture(tmp_path / "mixture.yaml")
        except DataError:
            refused += 1
    assert 0 < refused < 2000


def read(load, text: str) -> str | None:
    try:
        return repr(load(text))
    except (yaml.YAMLError, ValueError, IndexError, TypeError, AttributeError):
        return None


def test_what_is_read_is_what_safe_load_reads():
    rng, same = random.Random(1), 0
    for _ in range(2000):
        text = drawn(rng)
        expected, found = read(yaml.safe_load, text), read(bounded_yaml.load, text)
        itself = found is None and expected is not None and "[...]" in expected
        assert found == expected or itself, text
        same += found is not None
    assert same > 100


def test_drawn_metadata_of_cards_is_merged_or_refused():
    rng, card, refused = random.Random(2), render(grpo()), 0
    for _ in range(500):
        try:
            merge(card, f"---\n{drawn(rng)}\n---\n# Mine\n", "README.md")
        except ValueError:
            refused += 1
    assert 0 < refused < 500
