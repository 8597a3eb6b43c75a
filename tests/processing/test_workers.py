"""The processing class in other processes, copies and caches; and how often it does its work."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys

import datasets
import dill
import pytest
import torch
from datasets.fingerprint import Hasher

from tests.processing.prompts import CAT, COFFEE, ROCKET, text_of, tickets, user


def encode_in_worker(processing, conversation, result) -> None:
    prompt = processing.encode_prompt(conversation)
    batch = processing(images=[[ROCKET]], text=[text_of(processing, None, "what?")])
    result.put((prompt["input_ids"], batch["input_ids"][0], tickets(batch)))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["internvl", "llava"], indirect=True)
def test_a_spawned_worker_encodes_what_the_parent_can_read(processing):
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    worker = context.Process(target=encode_in_worker, args=(processing, user(CAT, "what?"), result))
    worker.start()
    prompt, ids, found = result.get(timeout=120)
    worker.join(60)
    assert worker.exitcode == 0
    # Read first: encoding here would put the images into this process's memory.
    assert processing.image_store.get(found[0]).image.tobytes() == ROCKET.tobytes()
    _, inside = processing.codec.read(prompt, lambda ticket: processing.processed(ticket).tokens)
    assert processing.image_store.get(inside[0]).image.tobytes() == CAT.tobytes()
    assert prompt == processing.encode_prompt(user(CAT, "what?"))["input_ids"]
    assert ids == processing(images=[[ROCKET]], text=[text_of(processing, None, "what?")])["input_ids"][0]


@pytest.mark.parametrize("pickler", [pickle, dill], ids=["pickle", "dill"])
def test_a_pickled_copy_encodes_the_same_prompts(processing, pickler):
    other = pickler.loads(pickler.dumps(processing))
    assert other is not processing
    assert type(other) is type(processing)
    assert other.encode_prompt(user(CAT, "what?")) == processing.encode_prompt(user(CAT, "what?"))
    batch = other(images=[[ROCKET]], text=[text_of(other, None, "what?")])
    assert processing.image_store.get(tickets(batch)[0]).image.tobytes() == ROCKET.tobytes()


def test_a_deep_copy_shares_the_store_and_not_the_tokenizer(processing):
    other = copy.deepcopy(processing)
    assert other.image_store is processing.image_store
    other.padding_side = "right"
    assert processing.padding_side == "left"
    batch = processing(images=[[CAT]], text=[text_of(processing, None, "what?")])
    assert other.processed(tickets(batch)[0]) is processing.processed(tickets(batch)[0])


def test_use_does_not_change_the_fingerprint_of_a_map_function(processing):
    before = Hasher.hash(processing.encode_prompt)
    processing.encode_prompt(user(CAT, "what?"), answer=1)
    processing(images=[CAT], text=[text_of(processing, None, "a")], padding=True, return_tensors="pt")
    assert Hasher.hash(processing.encode_prompt) == before


HASH = """
import sys
from datasets.fingerprint import Hasher
from hf_vlm_rl import AutoVLMPolicy, ImageStore
policy = AutoVLMPolicy.from_pretrained(sys.argv[1], image_store=ImageStore(sys.argv[2]))
print(Hasher.hash(policy.processing_class.encode_prompt))
"""
FORWARD = """
import sys, datasets, torch
from hf_vlm_rl import AutoVLMPolicy
policy = AutoVLMPolicy.from_pretrained(sys.argv[1], dtype="float32").eval()
rows = datasets.load_from_disk(sys.argv[2])
with torch.no_grad():
    for row in rows:
        logits = policy(input_ids=torch.tensor([row["input_ids"]])).logits
        print(*logits[0, -1, :5].tolist())
"""


def run_python(code: str, *arguments, **environment) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("family", ["internvl"], indirect=True)
def test_the_fingerprint_is_the_same_in_the_next_run(processing, checkpoint, store, family):
    told = run_python(HASH, checkpoint(family), store.directory)
    assert told.strip() == Hasher.hash(processing.encode_prompt)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation")  # stock PaliGemma
@pytest.mark.parametrize("family", ["internvl", "paligemma"], indirect=True)
def test_rows_mapped_by_two_processes_are_resolved_here_and_in_a_later_run(
    policy_for, bare_for, native_processor_for, checkpoint, family, tmp_path
):
    policy, native = policy_for(family), native_processor_for(family)
    photos = [CAT, COFFEE, ROCKET]
    rows = datasets.Dataset.from_dict(
        {"image": photos, "question": ["what?", "who is it?", "how many?"]},
        features=datasets.Features({"image": datasets.Image(), "question": datasets.Value("string")}),
    )
    encode = policy.processing_class.encode_prompt
    mapped = rows.map(
        lambda row: encode([{"role": "user", "content": row["question"]}], [row["image"]]),
        num_proc=2,
        remove_columns=rows.column_names,
    )
    mapped.save_to_disk(tmp_path / "mapped")
    later = run_python(FORWARD, checkpoint(family), tmp_path / "mapped").splitlines()
    bare = bare_for(family)
    for row, image, question, line in zip(mapped, photos, rows["question"], later, strict=True):
        inputs = native.apply_chat_template(
            [user(image, question)],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            expected = bare(**inputs).logits[0, -1]
            found = policy(input_ids=torch.tensor([row["input_ids"]])).logits[0, -1]
        expected[list(policy.placeholder_ids)] = -1e4  # tickets inside ids: as while sampling
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        told = torch.tensor([float(value) for value in line.split()])
        torch.testing.assert_close(told, expected[:5], atol=1e-5, rtol=1e-5)


@pytest.fixture
def counted(processing, monkeypatch):
    """A processing class, and how many images went through its native image processor."""
    numbers, native = [], type(processing.native_image_processor).__call__

    def count(self, images, *args, **kwargs):
        numbers.append(sum(len(row) if isinstance(row, list) else 1 for row in images))
        return native(self, images, *args, **kwargs)

    monkeypatch.setattr(type(processing.native_image_processor), "__call__", count)
    return processing, lambda: sum(numbers)


def test_an_image_is_processed_once_however_often_it_is_seen(counted):
    processing, images = counted
    text = text_of(processing, None, "what?")
    other = text_of(processing, None, "another question")
    for _ in range(3):
        processing(images=[[CAT], [COFFEE], [CAT], [CAT.copy()]], text=[text, text, other, text])
        processing.apply_chat_template(user(CAT, "what?"), tokenize=True, return_dict=True)
    assert images() == 2


def test_encoding_a_prompt_processes_its_images_once_with_and_without_columns(counted):
    processing, images = counted
    processing.encode_prompt(user(CAT, "what?"), answer="cat")
    processing.encode_prompt(user(CAT, "who?"), answer="tom")
    processing.encode_prompt(user(CAT, "who?"))
    assert images() == 1


def test_a_batch_without_images_processes_none(counted):
    processing, images = counted
    processing(text=[text_of(processing, "how are you?")])
    assert images() == 0
