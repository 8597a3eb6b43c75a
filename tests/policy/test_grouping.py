"""Rows are grouped so that the most tokens are saved."""

from collections.abc import Iterator

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_vlm_rl.policy.sharing.layout import find_layout


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


def saved(texts: list[str], group: list[int], aligned: bool) -> int:
    """Tokens that a group saves: all but one row's part of what its rows have in common."""
    if aligned and len({len(texts[row]) for row in group}) > 1:
        return 0
    shortest = min(len(texts[row]) for row in group) - 1
    common = next(
        (place for place in range(shortest) if len({texts[row][place] for row in group}) > 1), shortest
    )
    return common * (len(group) - 1)


@settings(max_examples=300)
@given(
    st.lists(st.text("ab", min_size=1, max_size=8), min_size=1, max_size=6),
    st.booleans(),
)
def test_no_other_groups_save_more(texts, aligned):
    columns = max(map(len, texts))
    keys = torch.zeros(len(texts), columns, dtype=torch.long)
    for row, text in enumerate(texts):
        keys[row, columns - len(text) :] = torch.tensor([ord(letter) for letter in text])
    layout = find_layout(keys, keys > 0, aligned=aligned)
    rows = list(range(len(texts)))
    best = max(sum(saved(texts, group, aligned) for group in groups) for groups in partitions(rows))
    assert layout.computed == sum(map(len, texts)) - best
    assert sorted(row for group in layout.groups for row in group.rows) == rows


def test_a_common_system_prompt_takes_no_rows_from_longer_prompts():
    """Two prompts of four rows each begin alike, and so do two rows of other prompts."""
    heads = [
        *[[1, 2, 3, 4, 5, 6]] * 4,
        *[[1, 2, 7, 8, 9, 6]] * 4,
        [1, 2, 10, 11, 12, 13],
        [1, 2, 14, 15, 16, 17],
    ]
    keys = torch.tensor([[*head, 100 + row, 200 + row] for row, head in enumerate(heads)])
    layout = find_layout(keys, torch.ones_like(keys, dtype=torch.bool))
    assert [(group.prefix, group.rows) for group in layout.groups] == [
        (6, (0, 1, 2, 3)),
        (6, (4, 5, 6, 7)),
        (2, (8, 9)),
    ]
