"""`AutoVLMPolicy.tokenizer`: the policy's tokenizer without its weights, also in another process."""

import json
import multiprocessing
import shutil

import pytest

from hf_vlm_rl import AutoVLMPolicy, ImageError, ImageStore, UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.images import photo
from tests.loading.internvl_chat.golden import QWEN2, directory

CAT, COFFEE = photo("cat", (150, 150)), photo("coffee", (600, 160))
CAUSAL = tuple(family for family in FAMILIES if family != "paligemma")
ROW = {"prompt": [{"role": "user", "content": "Compare them."}], "images": [CAT, COFFEE]}


def without_weights(source, target):
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))


def written(tokenizer) -> tuple:
    """What a tokenizer writes for a row, and what trainers read of it."""
    messages = tokenizer.with_tickets(ROW)["prompt"]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    special = tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token
    return messages, ids, special, tokenizer.padding_side, tokenizer.truncation_side, tokenizer.chat_template


@pytest.mark.parametrize("family", CAUSAL)
def test_it_writes_what_the_policys_writes_and_needs_no_weights(family, checkpoint, store, tmp_path):
    policy = AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32", image_store=store)
    tokenizer = AutoVLMPolicy.tokenizer(
        without_weights(checkpoint(family), tmp_path / "a"), image_store=store
    )
    assert written(tokenizer) == written(policy.tokenizer)
    ours, theirs = tokenizer.processing_class.state, policy.processing_class.state
    assert ours.family == theirs.family
    assert ours.never_sampled == theirs.never_sampled
    assert tokenizer.processing_class.codec.salt == policy.processing_class.codec.salt


@pytest.mark.parametrize("stops", ["", "in its own file", "in config.json"])
def test_the_end_of_a_turn_is_the_eos_where_generation_stops_there(stops, checkpoint, tmp_path):
    source = shutil.copytree(checkpoint("gemma3"), tmp_path / "a")
    generation = source / "generation_config.json"
    if stops == "in config.json":
        generation.unlink()
    elif stops:
        ends = AutoVLMPolicy.tokenizer(source).convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
        generation.write_text(json.dumps({"eos_token_id": ends}))
    policy = AutoVLMPolicy.from_pretrained(source, dtype="float32")
    assert AutoVLMPolicy.tokenizer(source).eos_token == policy.tokenizer.eos_token
    assert (policy.tokenizer.eos_token == "<end_of_turn>") or stops != "in its own file"


def test_options_of_images_are_those_of_the_policy(checkpoint):
    options = {"max_pixels": 31360}
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), dtype="float32", **options)
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"), **options)
    assert written(tokenizer) == written(policy.tokenizer)
    assert len(written(tokenizer)[1]) != len(written(AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl")))[1])
    with pytest.raises(ValueError, match=r"Got revisions for a qwen2_5_vl model. It takes min_pixels"):
        AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"), revisions="main")


def test_a_checkpoint_in_an_original_format(tmp_path):
    source = directory(QWEN2)
    policy = AutoVLMPolicy.from_pretrained(source, dtype="float32")
    assert written(AutoVLMPolicy.tokenizer(source)) == written(policy.tokenizer)


def test_what_has_no_such_tokenizer_is_refused(checkpoint, adapter_of):
    with pytest.raises(UnsupportedModelError, match=r"is an adapter. Expected its base, '.*internvl'"):
        AutoVLMPolicy.tokenizer(adapter_of("internvl"))
    with pytest.raises(UnsupportedModelError, match="attend in both directions"):
        AutoVLMPolicy.tokenizer(checkpoint("paligemma"))


def test_tools_that_are_enabled_are_enabled_in_the_tokenizer(checkpoint):
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint("internvl"))
    taught = tokenizer.processing_class.enable_tools().as_tokenizer()
    assert taught.chat_template == taught.processing_class.chat_template != tokenizer.chat_template
    call = {"type": "function", "function": {"name": "crop", "arguments": {"x": 1}}}
    text = taught.apply_chat_template(
        [{"role": "assistant", "content": "", "tool_calls": [call]}], tokenize=False
    )
    assert '"crop"' in text


def crop(tokenizer, result) -> None:
    """What a tool does in the process of an asynchronous trainer, and what follows."""
    mark = tokenizer.mark
    answer = str({"crop": mark(CAT)})
    ids = tokenizer.apply_chat_template([{"role": "tool", "content": answer}])["input_ids"]
    result.put((answer, list(ids), mark(COFFEE)))


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_a_spawned_process_writes_the_marks_and_ids_that_its_parent_reads(family, checkpoint, tmp_path):
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint(family), image_store=ImageStore(tmp_path / "store"))
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    child = context.Process(target=crop, args=(tokenizer, result))
    child.start()
    answer, ids, coffee = result.get(timeout=120)
    child.join(60)
    assert child.exitcode == 0
    processing = tokenizer.processing_class
    # Read first: writing here would put the images into this process's memory.
    _, (ticket,) = processing.codec.read(ids, lambda ticket: processing.processed(ticket).tokens)
    assert processing.image_store.get(ticket).image.tobytes() == CAT.tobytes()
    assert answer == str({"crop": tokenizer.mark(CAT)})
    assert coffee == tokenizer.mark(COFFEE) != tokenizer.mark(CAT)
    assert tokenizer.apply_chat_template([{"role": "tool", "content": answer}])["input_ids"] == ids


def test_a_mark_is_that_of_with_tickets_with_the_options_of_its_block(checkpoint):
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"))
    row = tokenizer.with_tickets({"prompt": [{"role": "user", "content": [{"type": "image", "image": CAT}]}]})
    assert row["prompt"][0]["content"] == tokenizer.mark(CAT)
    chosen = tokenizer.mark({"image": COFFEE, "max_pixels": 31360})
    assert len(tokenizer(chosen)["input_ids"]) != len(tokenizer(tokenizer.mark(COFFEE))["input_ids"])
    with pytest.raises(ImageError, match="got 'size' beside an image"):
        tokenizer.mark({"image": COFFEE, "size": 7})
    with pytest.raises(ImageError):
        tokenizer.mark(tokenizer)
