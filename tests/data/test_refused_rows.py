"""Rows that would lose something, or that nobody can read, are told one by one and by how to write them."""

import pytest
from datasets import Dataset

from hf_vlm_rl.data import check_data, from_dataset, load_any, load_messages
from hf_vlm_rl.errors import DataError
from tests.data.files import jsonl, llava

ASKED = {"prompt": "A?"}
TALK = {"messages": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "b"}]}
SMALL = {"path": "a.jpg", "max_pixels": 1000}
REFUSED = {
    "options of image": (ASKED | {"image": SMALL}, r"an image has \['max_pixels'\]"),
    "options of images": (TALK | {"images": [SMALL]}, r"an image has \['max_pixels'\]"),
    "options in LLaVA's": (llava("A?", image=SMALL), r"an image has \['max_pixels'\]"),
    "options twice": (
        ASKED | {"image": {"image": SMALL, "max_pixels": 2}},
        "Got max_pixels=2 and max_pixels=",
    ),
    "ms-swift's query": ({"query": "A?", "response": "b"}, "ms-swift's 'query' is 'prompt'"),
    "ms-swift's pair": (TALK | {"rejected_response": "c"}, r"'chosen' and 'rejected', or drop=\['rejected_r"),
    "ms-swift's talks": (
        TALK | {"rejected_messages": [1]},
        r"'chosen' and 'rejected', or drop=\['rejected_m",
    ),
    "null": ("null", "the row is None; expected a JSON object"),
    "a string": ('"conversations"', "the row is 'conversations'; expected a JSON object"),
    "no JSON": ("{", "not JSON"),
    "deep": ('{"prompt": ' + "[" * 5000 + "]" * 5000 + "}", "not JSON"),
    "no form": ({"a": 1}, r"the row has \['a'\]; expected 'messages'"),
}


@pytest.mark.parametrize(("row", "message"), REFUSED.values(), ids=REFUSED)
def test_a_refused_row_is_told_by_loaders_and_listed_by_the_check(row, message, tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", [row, row])
    with pytest.raises(DataError, match=f"line 1: .*{message}"):
        load_any(path)
    with pytest.raises(DataError, match=f"No row is left: all 2(.|\n)*line 2: .*{message}"):
        load_any(path, on_error="skip")
    report = check_data(path)
    assert [each.place for each in report.findings] == [f"{path}, line 1", f"{path}, line 2"]
    if not isinstance(row, dict):  # of any form, then
        jsonl(path, [row, ASKED, row])
        assert [each.place for each in check_data(path).findings] == [f"{path}, line 1", f"{path}, line 3"]


def test_a_line_that_is_no_unicode_is_listed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}\n')
    assert [each.reason[:22] for each in check_data(path).findings] == ["byte 12 is not UTF-8 ("]


def test_a_refused_field_can_be_dropped(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", [TALK | {"rejected_response": "c"}])
    assert load_messages(path, drop=["rejected_response"])["answer"][:] == ["b"]


def test_options_are_refused_in_rows_of_other_datasets():
    rows = Dataset.from_list([ASKED | {"image": SMALL}])
    with pytest.raises(DataError, match=r"row 0: an image has \['max_pixels'\]"):
        from_dataset(rows, prompt="prompt", images="image")
