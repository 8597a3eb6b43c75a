"""Every row of JSON Lines and JSON lists is found, wherever chunks end."""

import json

import pytest

from hf_vlm_rl.data.passes import json_file as json_rows
from hf_vlm_rl.data.passes.json_file import is_list, records
from hf_vlm_rl.errors import DataError

ROWS = [
    {"text": "größer als 日本語 \U0001f600", "n": 12345},
    {"text": 'quotes " and \\ and ], [ and }, {', "deep": [[{"a": [1.5, -2e-7, None, True]}]]},
    {},
    {"text": "\u2028 line\nbreaks\r\n and \x7f", "long": "x" * 200},
    {"last": -7},
]


def values(path):
    return [record.value for record in records(path)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_are_read_whatever_their_ends_and_with_blank_lines(tmp_path, end, mark):
    lines = ["", json.dumps(ROWS[0], ensure_ascii=False), "", "  \t", *map(json.dumps, ROWS[1:])]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(mark + end.join(lines).encode())  # the last line does not end
    found = list(records(path))
    assert [record.value for record in found] == ROWS
    assert [record.place for record in found] == [f"{path}, line {number}" for number in (2, 5, 6, 7, 8)]


@pytest.mark.parametrize("chunk", [*range(1, 40), 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_read_wherever_its_chunks_end(tmp_path, monkeypatch, chunk, indent):
    monkeypatch.setattr(json_rows, "CHUNK", chunk)
    path = tmp_path / "rows.json"
    path.write_text("\n " + json.dumps([*ROWS, 12345, 6], indent=indent, ensure_ascii=False) + "\n")
    assert values(path) == [*ROWS, 12345, 6]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_values_of_a_list_are_named_by_their_index(tmp_path, mark):
    path = tmp_path / "rows"
    path.write_text(mark + json.dumps(ROWS, ensure_ascii=False), encoding="utf-8")
    found = list(records(path))
    assert [record.value for record in found] == ROWS
    assert [record.place for record in found] == [f"{path}, index {number}" for number in range(len(ROWS))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"a": }]', "index 1.*Expecting value"),
        ('[{"a": 1} {"a": 2}]', "index 1.*expected ',' or ']'"),
        ('[{"a": 1}, {"a": 2}', "index 2.*cut off"),
        ('[{"a": 1}, {"a": "2', "index 1.*Unterminated string"),
        ('[{"a": 1},]', "index 1.*comma before"),
        ('[{"a": 1}]\n[]', "index 1.*follows the list"),
        (f'[{{"a": 1}}, {{"a": {"7" * 5000}}}]', "index 1.*4300 digits"),
    ],
)
@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_a_broken_list_names_the_value(tmp_path, monkeypatch, text, message, chunk):
    monkeypatch.setattr(json_rows, "CHUNK", chunk)
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        values(path)


def test_a_mistake_early_in_a_list_does_not_read_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "CHUNK", 1 << 10)
    path = tmp_path / "rows.json"
    path.write_text('[{"a": oops}, ' + json.dumps(["x" * 100] * 1000) + "]")
    with open(path) as file:
        with pytest.raises(DataError, match="index 0"):
            list(json_rows._items(file, path))
        assert len(file.read()) > 100_000


def test_broken_lines_are_records_and_the_others_are_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n\xff{}\n' + b"[" * 100_000 + b'\n{"a": 2}\n')
    found = [record.value for record in records(path)]
    assert [found[0], found[4]] == [{"a": 1}, {"a": 2}]
    assert all(isinstance(each, DataError) for each in found[1:4])
    assert "not JSON" in str(found[1])
    assert "byte 0 is not UTF-8" in str(found[2])


def test_a_value_of_a_list_that_is_no_utf_8_is_a_record_and_the_others_are_read(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes('[{"a": "größer"}, {"a": "'.encode() + b'\xff"}, {"a": "\xc3\xa4"}]')
    first, bad, last = (record.value for record in records(path))
    assert [first, last] == [{"a": "größer"}, {"a": "ä"}]
    assert "byte 7 is not UTF-8" in str(bad)


@pytest.mark.parametrize("form", ["lines", "list"])
def test_half_a_character_is_a_bad_record_and_a_whole_one_is_read(tmp_path, form):
    path = tmp_path / "rows"
    rows = [r'{"a": "\ud83d"}', r'{"a": "\uD83D\uDE00"}']
    path.write_text("[" + ",".join(rows) + "]" if form == "list" else "\n".join(rows))
    bad, good = (record.value for record in records(path))
    assert "surrogate" in str(bad)
    assert good == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \n\n", "is empty"),
        (b"PAR1....", "is Parquet"),
        (b"\x1f\x8b\x08", "unpack it first"),
        ("[]".encode("utf-16"), "UTF-16"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path, data, message):
    path = tmp_path / "rows.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        is_list(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl.*No such file"):
        is_list(tmp_path / "nowhere.jsonl")
