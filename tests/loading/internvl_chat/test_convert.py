"""`hf-vlm-rl convert`: what it writes, and what is left when it is interrupted."""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    InternVLForConditionalGeneration,
)

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli import main
from hf_vlm_rl.loading.internvl_chat.convert import convert

from .golden import INTERNLM2, NAMES, Case, directory, read

SHARD = 200_000  # bytes: several files


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    base = tmp_path_factory.mktemp("converted")
    return {name: convert(directory(name), base / name, shard_bytes=SHARD) for name in NAMES}


def prompt(processing, case: Case) -> dict:
    return processing.apply_chat_template(
        case.messages(), add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )


@pytest.mark.parametrize("name", NAMES)
def test_plain_transformers_computes_the_same(name, converted, original):
    model = AutoModelForImageTextToText.from_pretrained(converted[name], dtype="float32").eval()
    assert type(model) is InternVLForConditionalGeneration
    policy = original(name)
    assert list(model.state_dict()) == list(policy.state_dict())
    for key, value in policy.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key
    case = Case(name, "single_tile")
    tiles = policy.processing_class.native_image_processor(
        case.images, max_patches=max(case.max_tiles), return_tensors="pt"
    )["pixel_values"]
    with torch.no_grad():
        found = model(input_ids=case.ids(), pixel_values=tiles).logits
        assert torch.equal(found, policy(input_ids=case.ids(), pixel_values=tiles).logits)
    out = model.generate(case.ids(completion=False), pixel_values=tiles, max_new_tokens=12, do_sample=False)
    assert out[0, case.data["prompt_len"] :].tolist() == case.data["chat"]["greedy_ids"]


@pytest.mark.parametrize("name", NAMES)
def test_the_processor_and_the_tokenizer_give_the_same_ids(name, converted, original):
    ours = original(name, 6).processing_class
    processor = AutoProcessor.from_pretrained(converted[name], max_patches=6)
    tokenizer = AutoTokenizer.from_pretrained(converted[name])
    for case in read(name, "tokenizer_cases.json"):
        expected = ours.tokenizer(case["text"])["input_ids"]
        assert processor.tokenizer(case["text"])["input_ids"] == expected
        assert tokenizer(case["text"])["input_ids"] == expected
        if "IMG_CONTEXT" in case["text"]:
            continue  # plain transformers takes a processor's named tokens for special ones
        decoded = tokenizer.decode(case["ids"], skip_special_tokens=True)
        assert decoded == ours.tokenizer.decode(case["ids"], skip_special_tokens=True)
    case = Case(name, "no_image_tag")
    expected = prompt(ours, case)
    found = prompt(processor, case)
    assert torch.equal(found["input_ids"], expected["input_ids"])
    assert processor.tokenizer.eos_token == "<|im_end|>"
    generation = GenerationConfig.from_pretrained(converted[name])
    assert generation.eos_token_id == processor.tokenizer.eos_token_id


@pytest.mark.parametrize("name", NAMES)
def test_files_are_those_that_save_pretrained_writes(name, converted, original, tmp_path):
    original(name).save_pretrained(tmp_path)
    saved = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype="float32").state_dict()
    from safetensors import safe_open

    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        keys = set(file.keys())
    index = json.loads((converted[name] / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == keys
    assert set(index["weight_map"].values()) == {path.name for path in converted[name].glob("*.safetensors")}
    assert len(saved) == len(keys)
    for path in converted[name].glob("*.safetensors"):
        assert path.stat().st_size < SHARD + 20_000


def test_converting_twice_gives_the_same_bytes(converted, tmp_path):
    again = convert(directory(INTERNLM2), tmp_path / "again", shard_bytes=SHARD)
    names = sorted(path.name for path in again.iterdir())
    assert names == sorted(path.name for path in converted[INTERNLM2].iterdir())
    same, different, errors = filecmp.cmpfiles(again, converted[INTERNLM2], names, shallow=False)
    assert (sorted(same), different, errors) == (names, [], [])


def test_one_file_if_it_fits(tmp_path):
    folder = convert(directory(INTERNLM2), tmp_path / "one")
    assert [path.name for path in folder.glob("*.safetensors*")] == ["model.safetensors"]
    AutoVLMPolicy.from_pretrained(folder)


def test_nothing_is_rounded_where_the_files_hold_several_dtypes(tmp_path):
    folder = shutil.copytree(directory(INTERNLM2), tmp_path / "mixed")
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        kept = sorted(tensors)[::2]
        tensors |= {key: tensors[key].half() if key in kept else tensors[key].bfloat16() for key in tensors}
        save_file(tensors, path, metadata={"format": "pt"})
    converted = AutoVLMPolicy.from_pretrained(convert(folder, tmp_path / "out"), dtype="float32").state_dict()
    for key, value in AutoVLMPolicy.from_pretrained(folder, dtype="float32").state_dict().items():
        assert torch.equal(converted[key], value), key


def test_an_adapter_of_the_original_loads_on_the_converted_model(converted, fresh, tmp_path):
    policy = fresh(INTERNLM2)
    trained = get_peft_model(policy, policy.lora_config(r=4)).eval()
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    trained.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "adapter_config.json").read_text())
    assert stored["base_model_name_or_path"] == str(directory(INTERNLM2))
    case = Case(INTERNLM2, "two_images")
    tiles = policy.processing_class.native_image_processor(
        case.images, max_patches=max(case.max_tiles), return_tensors="pt"
    )["pixel_values"]
    stock = AutoModelForImageTextToText.from_pretrained(converted[INTERNLM2], dtype="float32")
    base = AutoVLMPolicy.from_pretrained(stored["base_model_name_or_path"], dtype="float32")
    with torch.no_grad():
        expected = trained(input_ids=case.ids(), pixel_values=tiles).logits
        plain = stock.eval()(input_ids=case.ids(), pixel_values=tiles).logits
        assert (expected - plain).abs().max() > 1e-2
        for model in (stock, base):
            model = PeftModel.from_pretrained(model, tmp_path).eval()
            found = model(input_ids=case.ids(), pixel_values=tiles).logits
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_the_command(tmp_path, capsys):
    arguments = ["convert", str(directory(INTERNLM2)), str(tmp_path / "out")]
    assert main(arguments) == 0
    assert (tmp_path / "out" / "config.json").is_file()
    assert main(arguments) == 1
    assert "not empty" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "more")]) == 1
    assert "'internvl'" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
def test_a_killed_run_leaves_no_checkpoint(tmp_path):
    # The child stops itself in the middle of the weights, so that the kill comes at no lucky moment.
    script = (
        "import sys, time\n"
        "from transformers import modeling_utils\n"
        "from hf_vlm_rl.loading.internvl_chat.convert import convert\n"
        "save = modeling_utils.safe_save_file\n"
        "def slow(*content, **metadata):\n"
        "    save(*content, **metadata); print('written', flush=True); time.sleep(60)\n"
        "modeling_utils.safe_save_file = slow\n"
        "convert(sys.argv[1], sys.argv[2], shard_bytes=100_000)\n"
    )
    destination = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(directory(INTERNLM2)), str(destination)], stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not destination.exists()
    assert len(list(tmp_path.glob(".out.partial"))) == 1
    convert(directory(INTERNLM2), destination)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    script = (
        "import resource, sys\n"
        "from hf_vlm_rl.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "sys.exit(main(['convert', sys.argv[1], sys.argv[2]]))\n"
    )
    destination = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory(INTERNLM2)), str(destination)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "model.safetensors" in done.stderr
    assert "free some space" in done.stderr
    assert list(tmp_path.iterdir()) == []
