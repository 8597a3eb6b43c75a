"""What rows have in common is found so that the fewest tokens are computed, and laid out as it is."""

import math
from collections.abc import Iterator

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_vlm_rl.policy.sharing.layout import find_layout
from hf_vlm_rl.policy.sharing.tree import FEWEST

TEXTS = st.lists(st.text("ab", min_size=1, max_size=8), min_size=1, max_size=6)
TOLLS = st.sampled_from([0, 1, 3, math.inf])


def batch(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """The texts' letters, padded on the left, and where they are."""
    columns = max(map(len, texts))
    keys = torch.zeros(len(texts), columns, dtype=torch.long)
    for row, text in enumerate(texts):
        keys[row, columns - len(text) :] = torch.tensor([ord(letter) for letter in text])
    return keys, keys > 0


def partitions(rows: list[int]) -> Iterator[list[list[int]]]:
    """Every way to put rows into groups."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for parts in partitions(rest):
        yield [[first], *parts]
        for place, part in enumerate(parts):
            yield [*parts[:place], [first, *part], *parts[place + 1 :]]


def in_common(texts: list[str], group: list[int], aligned: bool) -> int:
    """How many tokens a group's rows begin with, all but the last of the shortest."""
    if aligned and len({len(texts[row]) for row in group}) > 1:
        return 0
    shortest = min(len(texts[row]) for row in group) - 1
    return next(
        (place for place in range(shortest) if len({texts[row][place] for row in group}) > 1), shortest
    )


def least(texts: list[str], rows: list[int], begin: int, toll: float, aligned: bool) -> float:
    """Tokens and tolls of the best tree, by trying all."""

    def cost(group: list[int]) -> float:
        if len(group) == 1:
            return len(texts[group[0]]) - begin
        end = in_common(texts, group, aligned)
        if end - begin < (FEWEST if begin else 1):
            return math.inf
        return end - begin + (toll if begin else 0) + least(texts, group, end, toll, aligned)

    return min(sum(map(cost, groups)) for groups in partitions(rows))


@settings(max_examples=300, deadline=None)
@given(TEXTS, TOLLS, st.booleans())
def test_no_other_tree_is_cheaper(texts, toll, aligned):
    layout = find_layout(*batch(texts), aligned=aligned, toll=toll)
    behind = sum(span.before is not None and bool(span.edge.below) for span in layout.spans)
    assert behind == 0 or toll < math.inf
    tolls = behind * toll if behind else 0
    assert layout.computed + tolls == least(texts, list(range(len(texts))), 0, toll, aligned)


@settings(max_examples=300)
@given(TEXTS, TOLLS, st.booleans())
def test_every_row_sees_its_own_tokens_and_no_other(texts, toll, aligned):
    keys, mask = batch(texts)
    layout = find_layout(keys, mask, aligned=aligned, toll=toll)
    taken = keys.flatten()[layout.source][layout.target].view(keys.shape)
    assert torch.equal(taken[mask], keys[mask])
    places = layout.target.view(keys.shape)
    packed = torch.arange(layout.computed)
    seen = (packed <= packed[:, None]) & (packed[:, None] < layout.until)
    for row in range(len(texts)):
        own = places[row][mask[row]]
        assert layout.positions[own].tolist() == list(range(len(texts[row])))
        for place, query in enumerate(own):
            assert seen[query].nonzero().flatten().tolist() == sorted(own[: place + 1].tolist())
    calls = packed.split([call.length for call in layout.calls])
    for call, tokens in zip(layout.calls, calls, strict=True):
        asked = torch.cat([*(calls[number] for number in call.before), tokens])
        assert tokens[0] == call.start
        assert seen[tokens].sum() == seen[tokens][:, asked].sum()


@settings(max_examples=200)
@given(TEXTS, st.booleans())
def test_no_prefix_ends_inside_of_what_is_joined(texts, aligned):
    """As images are: a run of one letter."""
    keys, mask = batch(texts)
    joined = torch.zeros_like(mask)
    joined[:, 1:] = (keys[:, 1:] == ord("b")) & (keys[:, :-1] == ord("b"))
    layout = find_layout(keys, mask, joined, aligned, toll=0)
    for span in layout.spans:
        for row in span.edge.rows if span.edge.below else ():
            assert not joined[row, layout.starts[row] + span.edge.end]


def heads(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that begin as given and end in two tokens of their own."""
    keys = torch.tensor([[*row, 100 + number, 200 + number] for number, row in enumerate(rows)])
    return keys, torch.ones_like(keys, dtype=torch.bool)


def prefixes(layout) -> list[tuple[int, int, tuple[int, ...]]]:
    edges = [span.edge for span in layout.spans if span.edge.below]
    return [(edge.begin, edge.end, edge.rows) for edge in edges]


def test_a_short_system_prompt_is_computed_with_each_prompt():
    """Two prompts of four rows each begin alike, and so do two rows of other prompts."""
    rows = [
        *[[1, 2, 3, 4, 5, 6]] * 4,
        *[[1, 2, 7, 8, 9, 6]] * 4,
        [1, 2, 10, 11, 12, 13],
        [1, 2, 14, 15, 16, 17],
    ]
    layout = find_layout(*heads(*rows))
    assert prefixes(layout) == [(0, 6, (0, 1, 2, 3)), (0, 6, (4, 5, 6, 7)), (0, 2, (8, 9))]
    assert layout.levels == 1


def test_a_long_system_prompt_is_computed_once():
    system, first, second = list(range(40)), list(range(50, 60)), list(range(70, 80))
    layout = find_layout(*heads(*[system + first] * 3, *[system + second] * 3))
    assert prefixes(layout) == [(0, 40, tuple(range(6))), (40, 50, (0, 1, 2)), (40, 50, (3, 4, 5))]
    assert layout.levels == 2


def test_completions_that_begin_alike_by_chance_make_no_prefix():
    prompt = list(range(40))
    layout = find_layout(*heads(*[[*prompt, 50, 51, 52]] * 2, *[[*prompt, 60, 61, 62]] * 2))
    assert prefixes(layout) == [(0, 40, (0, 1, 2, 3))]


def test_small_subtrees_attend_with_their_neighbours():
    """As many calls as for suffixes that have nothing in common."""
    prompt, turn = list(range(400)), list(range(500, 520))
    layout = find_layout(*heads(*[prompt + turn] * 2, [*prompt, *range(600, 620)]))
    assert prefixes(layout) == [(0, 400, (0, 1, 2)), (400, 420, (0, 1))]
    assert [call.length for call in layout.calls] == [400, 20 + 2 + 2 + 22]
