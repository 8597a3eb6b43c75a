"""`push_images`: from rows to an origin, and from there to the store of another machine."""

import shutil

import pytest
from datasets import Dataset
from fsspec import filesystem
from huggingface_hub import HfFileSystem

from hf_vlm_rl import AutoVLMPolicy, ImageStore, PushError, TicketError, push_images
from tests.hub.server import ALICE, Fault
from tests.trainers.runs import cat, cup, user, woman

DATASET = "alice/images"


@pytest.fixture
def processing_in(checkpoint, tmp_path):
    """`processing_in(machine)`: a processing class with the store of that machine."""

    def load(machine: str, origin: str):
        store = ImageStore(tmp_path / machine, origin=origin)
        return AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"), image_store=store).processing_class

    return load


@pytest.fixture
def dataset(hub, monkeypatch):
    """An empty dataset on the stand-in, and its address."""
    monkeypatch.setenv("HF_TOKEN", ALICE)
    HfFileSystem.clear_instance_cache()
    hub.add(DATASET, {".gitattributes": b""}, private=True)
    yield f"hf://datasets/{DATASET}/run-1"
    HfFileSystem.clear_instance_cache()


def encoded(processing) -> list[dict]:
    return [
        processing.encode_prompt(user("Compare them."), [cat(), cup()], answer="x"),
        processing.encode_prompt(user("What is it?"), [cup()], answer="y"),
        processing.encode_prompt(user("Say hello."), [], answer="z"),
    ]


def notes(processing, rows: list[dict]) -> list[dict]:
    processing.pad(rows)
    ids = [row["input_ids"] for row in rows]
    store = processing.image_store
    of_images = [store.get(ticket).columns for row in ids for ticket in processing.codec.candidates(row)]
    return [*of_images, store.text_prompts.find(processing.codec.salt, ids[-1])[1].columns]


ANSWERS = [{"answer": answer} for answer in "xxyz"]


@pytest.mark.parametrize("origin", ["a folder", "file://", "memory://"])
def test_rows_reach_another_machine(processing_in, tmp_path, origin):
    origin = {"a folder": f"{tmp_path}/shared", "file://": f"file://{tmp_path}/shared"}.get(
        origin, "memory://run"
    )
    first, second = processing_in("a", origin), processing_in("b", origin)
    rows = encoded(first)
    with pytest.raises(TicketError, match=r"Row 0 of the batch: No image .* nor at the origin"):
        second.pad(rows)
    # Two images, three notes of them, and one of a prompt without an image.
    assert (push_images(first, rows), push_images(first, rows)) == (6, 0)
    assert notes(second, rows) == ANSWERS
    if origin.startswith("memory"):
        filesystem("memory").rm("/run", recursive=True)


def test_rows_reach_another_machine_by_a_dataset_on_the_hub(processing_in, dataset, hub):
    first, second = processing_in("a", dataset), processing_in("b", dataset)
    rows = encoded(first)
    with pytest.raises(TicketError, match=r"No image .* nor at the origin hf://datasets/alice/images/run-1"):
        second.pad(rows)
    before = len(hub.requests)
    assert push_images(first, rows) == 6
    assert sum("/commit/" in line for line in hub.requests[before:]) == 1
    assert sorted(path.split("/")[0] for path in hub.files(DATASET)) == [".gitattributes", *["run-1"] * 6]
    assert push_images(first, rows) == 0
    assert notes(second, rows) == ANSWERS  # though it has listed the dataset before
    hub.requests.clear()
    assert notes(processing_in("b", dataset), rows) == ANSWERS
    assert hub.requests == []


@pytest.mark.parametrize(
    "fault", [Fault("POST /api/datasets/alice/images/commit", 500, 99), Fault("POST .*/preupload", 403)]
)
def test_a_hub_that_refuses_is_told_and_the_same_call_goes_on(processing_in, dataset, hub, fault):
    first = processing_in("a", dataset)
    rows = encoded(first)
    hub.faults.append(fault)
    with pytest.raises(
        PushError, match=r"(?s)origin hf://datasets/alice/images/run-1 cannot be written: .*made to fail"
    ):
        push_images(first, rows)
    hub.faults.clear()
    assert push_images(first, rows) == 6


def test_a_repository_that_is_not_there_is_told(processing_in, dataset):
    nowhere = "hf://datasets/alice/nothing"
    first = processing_in("a", nowhere)
    rows = encoded(first)
    with pytest.raises(PushError, match=f"The origin {nowhere} cannot be written"):
        push_images(first, rows)
    with pytest.raises(TicketError, match=f"Cannot ask the origin {nowhere}"):
        processing_in("b", nowhere).pad(rows)


def test_rows_of_tensors_and_texts_with_tickets_are_read(processing_in, checkpoint, tmp_path):
    origin = str(tmp_path / "shared")
    first, second = processing_in("a", origin), processing_in("b", origin)
    rows = Dataset.from_list(encoded(first)).with_format("torch")
    assert push_images(first, rows) == 6
    assert notes(second, [{key: value.tolist() for key, value in row.items()} for row in rows]) == ANSWERS
    tokenizers = [
        AutoVLMPolicy.tokenizer(
            checkpoint("qwen2_5_vl"), image_store=ImageStore(tmp_path / machine, origin=origin)
        )
        for machine in "cd"
    ]
    row = tokenizers[0].with_tickets({"prompt": user("What is it?"), "images": [woman()]})
    with pytest.raises(TicketError, match="No image for ticket"):
        tokenizers[1].apply_chat_template(row["prompt"])
    assert push_images(tokenizers[0].processing_class, [row]) == 1
    ids = [tokenizer.apply_chat_template(row["prompt"])["input_ids"] for tokenizer in tokenizers]
    assert ids[0] == ids[1]


def test_what_cannot_be_pushed_is_told(processing_in, tmp_path):
    first = processing_in("a", str(tmp_path / "shared"))
    rows = encoded(first)
    with pytest.raises(ValueError, match="No row has a ticket"):
        push_images(first, [{"prompt": user("What is it?"), "answer": [1, 2, 3]}])
    alone = processing_in("a", "")
    with pytest.raises(ValueError, match="Got no origin"):
        push_images(alone, rows)
    shutil.rmtree(tmp_path / "a" / "kept")
    with pytest.raises(TicketError, match="Row 1: No image for ticket"):
        push_images(processing_in("a", str(tmp_path / "shared")), [{"id": 1}, rows[1]])
