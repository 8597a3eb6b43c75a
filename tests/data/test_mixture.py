"""VLM-R1's mixtures: which rows of which file, in which order, with which columns."""

import tracemalloc

import pytest

from hf_vlm_rl.data import load_mixture
from hf_vlm_rl.data.mixture import Sample
from hf_vlm_rl.errors import DataError
from tests.data.files import NAMES, jsonl, listed, llava, sizes


@pytest.fixture
def folder(tmp_path, photos):
    """Ten rows with an image, four without, two pairs of turns, and their images in `images`."""
    (tmp_path / "images").symlink_to(photos)
    with_images = [llava("<image>A?", f"a{i}", image=NAMES[i % 3], box=[i, i + 0.5]) for i in range(10)]
    jsonl(tmp_path / "images.jsonl", with_images)
    listed(tmp_path / "text.json", [llava("B?", f"b{i}", level=i) for i in range(4)])
    said = [{"role": "user", "content": "C?"}, {"role": "assistant", "content": "c"}]
    jsonl(tmp_path / "chat.jsonl", [{"messages": said}] * 2)
    return tmp_path


@pytest.fixture
def load(folder, monkeypatch):
    """`load(entries, ...)`: what `load_mixture` makes of lines of yaml."""

    def load(*entries, **options):
        (folder / "mixture.yaml").write_text("datasets:\n" + "".join(f"  - {{{each}}}\n" for each in entries))
        return load_mixture(folder / "mixture.yaml", **{"image_folder": folder / "images", **options})

    return load


def answers(dataset):
    return [row["answer"] for row in dataset.select_columns("answer")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("all", range(10)),
        ("first:3", range(3)),
        ("end:3", range(7, 10)),
        ("first:10%", range(1)),
        ("end:11%", range(8, 10)),
        ("first:10", range(10)),
        ("random:100%", range(10)),
    ],
)
def test_a_strategy_takes_its_rows_in_the_file_s_order(load, strategy, expected):
    dataset = load(f"json_path: images.jsonl, sampling_strategy: '{strategy}'")
    assert answers(dataset) == [f"a{i}" for i in expected]


def test_random_rows_depend_on_the_seed_and_on_the_entry(load):
    entry = "json_path: images.jsonl, sampling_strategy: random:4"
    dataset = load(entry, entry)
    first, second = answers(dataset)[:4], answers(dataset)[4:]
    assert first == sorted(first)
    assert len(set(first)) == 4
    assert first != second
    assert answers(load(entry)) == first
    assert answers(load(entry, seed=1)) != first


def test_random_rows_are_drawn_evenly():
    counts = sum(Sample("random:30%", (seed, 0))(10) for seed in range(2000)) / 2000
    assert abs(counts - 0.3).max() < 0.05  # 5 standard deviations: 0.051


@pytest.mark.parametrize(("text", "taken"), [("random:1.1%", 33), ("first:0.7%", 21), ("end:33.4%", 1002)])
def test_a_percentage_is_rounded_up_and_no_further(text, taken):
    assert Sample(text, (0, 0))(3000).sum() == taken


def test_rows_with_and_without_images_mix_and_their_columns_are_united(load):
    dataset = load(
        "json_path: text.json, sampling_strategy: end:1",
        "json_path: images.jsonl, sampling_strategy: first:1",
        "json_path: chat.jsonl, format: messages, name: chat, sampling_strategy: first:1",
    )
    assert dataset.column_names == ["prompt", "images", "answer", "source", "level", "box"]
    assert [sizes(row) for row in dataset] == [[], [(24, 32)], []]
    assert dataset.select_columns(["answer", "source", "level", "box"])[:] == {
        "answer": ["b3", "a0", "c"],
        "source": ["text.json", "images.jsonl", "chat"],
        "level": [3, None, None],
        "box": [None, [0.0, 0.5], None],
    }


def test_paths_are_relative_to_the_yaml_file(load, folder, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    dataset = load("json_path: images.jsonl, image_folder: images", image_folder=None)
    assert sizes(dataset[0]) == [(24, 32)]
    with pytest.raises(DataError, match=r"images\.jsonl, line 1: there is no image file"):
        load("json_path: images.jsonl", image_folder=None)  # beside the file there are none
    with pytest.raises(DataError, match=r"datasets\[0\]: There is no folder .*nowhere"):
        load("json_path: images.jsonl, image_folder: nowhere")


def test_types_that_differ_between_files_name_both(load, folder):
    jsonl(folder / "other.jsonl", [llava("A?", "x", level="hard")])
    entries = ["json_path: text.json", "json_path: other.jsonl"]
    with pytest.raises(DataError, match=r"other\.jsonl, line 1: column 'level' .*text\.json, index 0"):
        load(*entries)
    assert load(*entries, strings=["level"])["level"] == ["0", "1", "2", "3", "hard"]


def test_only_rows_that_are_taken_are_checked(load, folder):
    jsonl(
        folder / "bad.jsonl", [llava("A?", "x", id="1"), "{", llava("<image>", "y"), llava("B?", "z", id=1)]
    )
    entry = "json_path: bad.jsonl, sampling_strategy:"
    assert answers(load(f"{entry} first:1")) == ["x"]
    assert load(f"{entry} end:1")["id"] == [1]
    with pytest.raises(DataError, match="line 3: 1 place"):
        load(f"{entry} end:2")
    assert answers(load(f"{entry} end:2", on_error="skip")) == ["z"]


@pytest.mark.parametrize(
    "strategy",
    [
        "first",
        "first:",
        "first:0",
        "first:-1",
        "first:2.5",
        "last:3",
        "random:101%",
        "end:0%",
        "3",
        "first:" + "9" * 5000,
    ],
)
def test_other_strategies_are_refused(load, strategy):
    with pytest.raises(DataError, match=r"mixture\.yaml, datasets\[1\]: sampling_strategy is"):
        load("json_path: text.json", f"json_path: images.jsonl, sampling_strategy: '{strategy}'")


def test_more_rows_than_there_are_is_an_error(load):
    with pytest.raises(DataError, match="'random:5', but there are 4 rows"):
        load("json_path: text.json, sampling_strategy: random:5")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("path: text.json", "expected a json_path"),
        ("json_path: text.json, sampling: first:1", r"the entry has \['sampling'\]"),
        ("json_path: text.json, format: csv", "the format is 'csv'"),
        ("json_path: nowhere.json", r"datasets\[0\]: Cannot read '.*nowhere\.json'"),
    ],
)
def test_a_bad_entry_is_named(load, entry, message):
    with pytest.raises(DataError, match=message):
        load(entry)


@pytest.mark.parametrize("text", ["", "[]", "datasets: []", "other: 1", "datasets: {a: 1}"])
def test_a_file_that_is_no_mixture_is_refused(tmp_path, text):
    (tmp_path / "mixture.yaml").write_text(text)
    with pytest.raises(DataError, match="Expected 'datasets:' with a list"):
        load_mixture(tmp_path / "mixture.yaml")


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    with pytest.raises(DataError, match="Cannot read"):
        load_mixture(tmp_path / "mixture.yaml")
    (tmp_path / "mixture.yaml").write_text("datasets: [")
    with pytest.raises(DataError, match="is not yaml"):
        load_mixture(tmp_path / "mixture.yaml")


def test_a_row_s_own_source_is_not_overwritten(load, folder):
    jsonl(folder / "own.jsonl", [llava("A?", "x", source="web")])
    with pytest.raises(DataError, match="field 'source' of its own"):
        load("json_path: own.jsonl")
    assert load("json_path: own.jsonl", drop=["source"])["source"] == ["own.jsonl"]


def aliases(levels: int, line: str) -> str:
    """Ten aliases a line, each of which stands for the line before."""
    lines = [line.format(this=f"a{n}", that=", ".join([f"*a{n - 1}"] * 10)) for n in range(1, levels)]
    return "\n".join(["x0: &a0 {v: 1}", *lines])


@pytest.mark.parametrize(
    "text",
    [
        aliases(12, "x{this}: &{this} [{that}]") + "\ndatasets: *a11",
        aliases(12, "x{this}: &{this} [{that}]") + "\ndatasets: [*a11]",
        aliases(9, "x{this}: &{this} {{<<: [{that}]}}") + "\ndatasets: [*a8]",
        "datasets: &a [*a]",
        f"x: &a {'x' * 10_000}\ndatasets: [{', '.join(['*a'] * 1000)}]",
    ],
    ids=["list", "entry", "merge", "itself", "text"],
)
def test_aliases_that_multiply_are_refused_in_little_memory(tmp_path, text):
    (tmp_path / "mixture.yaml").write_text(text)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"mixture\.yaml is not yaml: its aliases, written out, are"):
        load_mixture(tmp_path / "mixture.yaml")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_yaml_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "mixture.yaml").write_text("datasets: " + "[" * 20_000)
    with pytest.raises(DataError, match=r"is not yaml: it is nested too deeply"):
        load_mixture(tmp_path / "mixture.yaml")


def test_aliases_share_what_entries_have_in_common(folder):
    (folder / "shared.yaml").write_text(
        "common: &common {image_folder: images, sampling_strategy: 'first:1'}\n"
        "datasets:\n  - {<<: *common, json_path: own.jsonl}\n"
    )
    jsonl(folder / "own.jsonl", [llava("A?", "x"), llava("B?", "y")])
    assert len(load_mixture(folder / "shared.yaml")) == 1
