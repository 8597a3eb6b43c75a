"""Other datasets get the columns that trainers take."""

import re

import pytest
from datasets import ClassLabel, Dataset, Features, Image, IterableDataset, List, Value

from hf_vlm_rl.data import from_dataset
from hf_vlm_rl.errors import DataError
from tests.data.files import IMAGE, pixels, sizes, turn, user
from tests.images import photo


def cat(side=24):
    return photo("cat", (side, 32))


def rows():
    return [
        {"question": "What?", "picture": cat(), "label": 3, "name": "a"},
        {"question": "Hello.", "picture": None, "label": 4, "name": "b"},
    ]


def as_dataset(values, streamed):
    """A dataset, or a stream of it."""
    dataset = Dataset.from_list(values)
    return dataset.to_iterable_dataset() if streamed else dataset


WAYS = pytest.mark.parametrize("streamed", [False, True])


@WAYS
def test_columns_and_templates_are_mapped(streamed):
    dataset = from_dataset(
        as_dataset(rows(), streamed), prompt="Q: {question}", images="picture", answer="{label}.", system="S"
    )
    assert dataset.column_names == ["prompt", "images", "answer", "question", "label", "name"]
    assert dataset.features["images"] == List(Image())
    first, second = dataset
    assert pixels(first) == {
        "prompt": [turn("system", "S"), user(IMAGE, "Q: What?")],
        "images": [("RGB", (24, 32), cat().tobytes())],
        "answer": "3.",
        "question": "What?",
        "label": 3,
        "name": "a",
    }
    assert second["prompt"] == [turn("system", "S"), user("Q: Hello.")]
    assert second["images"] == []


@WAYS
def test_only_the_columns_to_keep_stay(streamed):
    dataset = as_dataset(rows(), streamed)
    assert from_dataset(dataset, prompt="question", keep=["name"]).column_names == [
        "prompt",
        "images",
        "name",
    ]
    assert from_dataset(dataset, prompt="question", answer="name", keep=[]).column_names == [
        "prompt",
        "images",
        "answer",
    ]


@WAYS
def test_messages_and_pairs_are_mapped(streamed):
    said = [{"from": "human", "value": "<image>A?"}]
    values = [
        {
            "said": said,
            "good": "yes",
            "bad": [{"role": "assistant", "content": "no"}],
            "p": cat(),
            "q": cat(40),
        }
    ]
    [row] = from_dataset(
        as_dataset([{**values[0], "said": [{"from": "human", "value": "<image>A<image>?"}]}], streamed),
        prompt="said",
        images=["p", "q"],
        chosen="good",
        rejected="bad",
        keep=[],
    )
    assert sizes(row) == [(24, 32), (40, 32)]
    assert row["prompt"] == [user(IMAGE, "A", IMAGE, "?")]
    assert [row["chosen"], row["rejected"]] == [[turn("assistant", "yes")], [turn("assistant", "no")]]


def test_lists_of_images_paths_and_a_column_of_the_same_name(photos):
    images = [[str(photos / "cat.png")], [], ["coffee.png", "rocket.png"]]
    stored = Features({"prompt": Value("string"), "images": List(Image())})
    decoded = Dataset.from_dict({"prompt": ["A", "B", "C"], "images": [images[0], [], []]}, features=stored)
    paths = Dataset.from_dict({"prompt": ["A", "B", "C"], "images": images})
    assert [sizes(row) for row in from_dataset(decoded, prompt="prompt", images="images")] == [
        [(24, 32)],
        [],
        [],
    ]
    read = from_dataset(paths, prompt="prompt", images="images", image_folder=photos)
    assert [sizes(row) for row in read] == [[(24, 32)], [], [(32, 32), (40, 32)]]
    assert read.column_names == ["prompt", "images"]


def test_classes_are_answered_by_name():
    features = Features({"q": Value("string"), "label": ClassLabel(names=["cat", "cup"])})
    dataset = Dataset.from_dict({"q": ["A?"] * 3, "label": [1, 0, -1]}, features=features)
    assert from_dataset(dataset, prompt="q", answer="label")["answer"] == ["cup", "cat", None]
    assert from_dataset(dataset, prompt="q", answer="label", keep=["label"])["label"] == [1, 0, -1]


def test_templates_that_cannot_be_filled_are_rows_of_their_own(caplog):
    dataset = Dataset.from_dict({"q": ["A?", None, "B?"], "options": [["x", "y"], ["x", "y"], ["x"]]})
    asked = {"prompt": "Question: {q}", "answer": "{options[1]}"}
    with pytest.raises(DataError, match="row 1"):
        from_dataset(dataset, **asked)
    with pytest.raises(DataError, match=r"row 1: the template '\{options\[1\]\}' cannot be filled"):
        from_dataset(dataset.select([0, 2]), **asked)
    assert from_dataset(dataset, on_error="skip", **asked)["answer"][:] == ["y"]
    assert from_dataset(dataset.add_column("p", ["?"] * 3), prompt="p", answer="{q}")["answer"][:] == [
        "A?",
        None,
        "B?",
    ]


def test_stored_images_are_copied_without_being_decoded():
    bad = Dataset.from_dict({"q": ["A"], "picture": [{"bytes": b"no image", "path": None}]}).cast_column(
        "picture", Image()
    )
    stored = from_dataset(bad, prompt="q", images="picture").cast_column("images", List(Image(decode=False)))
    assert stored[0]["images"][0]["bytes"] == b"no image"


@pytest.mark.parametrize("path", ["hf://datasets/org/photos@main/cat.png", "zip://cat.png::/data/cats.zip"])
def test_files_that_only_datasets_opens_keep_their_paths(path):
    there = Dataset.from_dict({"q": ["A"], "picture": [{"bytes": None, "path": path}]})
    there = there.cast_column("picture", Image(decode=False))
    stored = from_dataset(there, prompt="q", images="picture").cast_column(
        "images", List(Image(decode=False))
    )
    assert stored[0]["images"][0]["path"] == path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "text"}, "Got prompt from ['text'], but the dataset has ['question'"),
        ({"prompt": "{text}?"}, "Got prompt from ['text']"),
        ({"prompt": "question", "answer": "solution"}, "Got answer from ['solution']"),
        ({"prompt": "question", "images": "image"}, "Got images from ['image']"),
        ({"prompt": "question", "images": ["picture", "image"]}, "Got images from ['image']"),
        ({"prompt": "question", "chosen": "good"}, "Got chosen from ['good']"),
        ({"prompt": "question", "keep": ["nothing"]}, "not there (['nothing'])"),
        ({"prompt": "question", "answer": "name", "keep": ["answer"]}, "['answer']"),
        ({"prompt": "question", "on_error": "ignore"}, "Got on_error='ignore'"),
    ],
)
def test_arguments_that_do_not_fit_the_dataset_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        from_dataset(Dataset.from_list(rows()), **options)


@WAYS
def test_a_bad_row_is_named(streamed):
    values = [{"q": "A?", "a": "x", "p": cat()}, {"q": "<image><image>", "a": "y", "p": cat()}]
    with pytest.raises(DataError, match="row 1: 2 place"):
        list(from_dataset(as_dataset(values, streamed), prompt="q", images="p"))


@WAYS
@pytest.mark.parametrize("answer", [3, 0.5, [1, 2, 3, 4], True])
def test_answers_stay_what_they_are(answer, streamed):
    (row,) = from_dataset(as_dataset([{"q": "A?", "a": answer}], streamed), prompt="q", answer="a")
    assert row["answer"] == answer
    assert type(row["answer"]) is type(answer)


def test_bad_rows_are_skipped_and_counted(caplog):
    values = [{"q": "A?", "p": cat()}, {"q": "<image>", "p": None}, {"q": "B?", "p": None}]
    refused = []
    dataset = from_dataset(Dataset.from_list(values), prompt="q", images="p", on_error="skip")
    assert [row["prompt"][0]["content"][-1]["text"] for row in dataset] == ["A?", "B?"]
    assert "1 of 3 rows were skipped:\n  row 1: 1 place" in caplog.text
    streamed = Dataset.from_list(values).to_iterable_dataset()
    assert len(list(from_dataset(streamed, prompt="q", images="p", on_error=refused.append))) == 2
    assert [str(error)[:6] for error in refused] == ["row 1:"]
    with pytest.raises(DataError, match="No row is left"):
        from_dataset(Dataset.from_list(values[1:2]), prompt="q", images="p", on_error="skip")


def test_what_a_stream_cannot_do_is_said():
    stream = as_dataset(rows(), True)
    for options in ({"on_error": "skip"}, {"num_proc": 2}):
        with pytest.raises(ValueError, match="Expected neither"):
            from_dataset(stream, prompt="question", **options)
    with pytest.raises(ValueError, match="a stream without features"):
        from_dataset(IterableDataset.from_generator(lambda: iter(rows())), prompt="question")
    with pytest.raises(ValueError, match="one split"):
        from_dataset({"train": stream}, prompt="question")


def test_two_processes_give_the_same_rows():
    dataset = Dataset.from_list(rows() * 3)
    one, two = (from_dataset(dataset, prompt="question", images="picture", num_proc=n) for n in (None, 2))
    assert [pixels(row) for row in one] == [pixels(row) for row in two]
