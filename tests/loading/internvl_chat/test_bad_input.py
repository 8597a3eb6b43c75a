"""Damaged and unknown checkpoints: an error that names the file and the key, never random weights."""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_vlm_rl import AutoVLMPolicy, CheckpointError, UnsupportedModelError
from hf_vlm_rl.loading.internvl_chat.convert import convert

from .golden import DATA, INTERNLM2, QWEN2, VIT6B, directory

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def copied(tmp_path):
    """`copied(name)`: a checkpoint to damage."""
    return lambda name=INTERNLM2: shutil.copytree(directory(name), tmp_path / "broken")


def load(folder):
    return AutoVLMPolicy.from_pretrained(folder, dtype="float32")


def refuses(folder, *words: str, error: type[Exception] = CheckpointError) -> None:
    """Loading and converting fail with a message that has all `words`, and nothing is written."""
    for action in (load, lambda source: convert(source, folder.parent / "converted")):
        with pytest.raises(error) as caught:
            action(folder)
        for word in words:
            assert word in str(caught.value)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def edit(path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_missing_shard(copied):
    folder = copied()
    (folder / SHARD).unlink()
    refuses(folder, SHARD, "missing", "language_model.")


@pytest.mark.parametrize("size", [0, 7, 1000, 120_000])
def test_a_truncated_shard(size, copied):
    folder = copied()
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(content[:size])
    refuses(folder, SHARD, "truncated")


def test_a_shard_of_garbage(copied):
    folder = copied()
    (folder / SHARD).write_bytes(b"<html>404</html>" * 1000)
    refuses(folder, SHARD)


def test_no_weights_at_all(copied):
    folder = copied(QWEN2)
    (folder / "model.safetensors").unlink()
    refuses(folder, "model.safetensors.index.json")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": "b"}}'])
def test_a_damaged_index(content, copied):
    folder = copied()
    (folder / "model.safetensors.index.json").write_text(content)
    refuses(folder, "model.safetensors.index.json")


def change_weights(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


KEYS = (
    "vision_model.encoder.layers.1.attn.qkv.weight",
    "vision_model.embeddings.class_embedding",
    "mlp1.3.bias",
    "language_model.model.layers.0.self_attn.k_proj.bias",
    "language_model.lm_head.weight",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_tensor(key, copied):
    folder = copied(QWEN2)
    change_weights(folder, lambda tensors: tensors.pop(key))
    refuses(folder, "model.safetensors", repr(key), "missing")


@pytest.mark.parametrize("key", KEYS)
def test_a_tensor_of_another_shape(key, copied):
    folder = copied(QWEN2)

    def widen(tensors):
        tensors[key] = torch.cat([tensors[key]] * 2)

    change_weights(folder, widen)
    refuses(folder, "model.safetensors", repr(key), "expected [")


def test_a_tensor_that_is_not_the_models(copied):
    folder = copied(QWEN2)
    change_weights(folder, lambda tensors: tensors.update({"vision_model.head.weight": torch.zeros(2)}))
    refuses(folder, "model.safetensors", "'vision_model.head.weight'", "not part of this model")


def test_quantised_weights(copied):
    folder = copied(QWEN2)
    key = "mlp1.1.weight"
    change_weights(folder, lambda tensors: tensors.update({key: tensors[key].to(torch.int8)}))
    refuses(folder, repr(key), "I8")


def test_derived_buffers_are_ignored(copied):
    folder = copied(QWEN2)
    name = "language_model.model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda tensors: tensors.update({name: torch.zeros(8)}))
    load(folder)
    convert(folder, folder.parent / "converted")


def test_an_index_that_promises_too_much(copied):
    folder = copied()
    edit(
        folder / "model.safetensors.index.json",
        lambda index: index["weight_map"].update({"mlp1.9.weight": SHARD}),
    )
    refuses(folder, SHARD, "'mlp1.9.weight'")


def test_unknown_parts(copied):
    folder = copied()
    config = json.loads((folder / "config.json").read_text())
    changes = {
        "GptOssForCausalLM": lambda c: c["llm_config"].update(architectures=["GptOssForCausalLM"]),
        "None": lambda c: c.pop("llm_config"),
        "vicuna_v1.1": lambda c: c.update(template="vicuna_v1.1"),
        "CLIPVisionModel": lambda c: c["vision_config"].update(architectures=["CLIPVisionModel"]),
        "pad2square": lambda c: c.update(pad2square=True),
        "layer_norm_eps": lambda c: c["vision_config"].update(qk_normalization=True, layer_norm_eps=1e-5),
    }
    for word, change in changes.items():
        changed = json.loads(json.dumps(config))
        change(changed)
        (folder / "config.json").write_text(json.dumps(changed))
        refuses(folder, word, str(folder), error=UnsupportedModelError)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        (INTERNLM2, "tokenizer.model"),
        (INTERNLM2, "tokenizer_config.json"),
        (QWEN2, "vocab.json"),
        (QWEN2, "merges.txt"),
        (QWEN2, "tokenizer_config.json"),
    ],
)
def test_a_truncated_tokenizer_file(name, file, share, copied):
    folder = copied(name)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(len(content) * share)])
    refuses(folder, file)


def test_a_truncated_tokenizer_json(copied):
    folder = copied(VIT6B)
    (folder / "vocab.json").unlink()  # so that tokenizer.json is what is left
    load(folder)
    content = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(content[: len(content) // 2])
    refuses(folder, "tokenizer.json")


def test_merges_cut_at_the_end_of_a_line(copied):
    folder = copied(QWEN2)
    lines = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join(lines[:-1]) + "\n")
    refuses(folder, "merges.txt", "truncated")


def test_a_sentencepiece_model_cut_between_pieces(copied):
    folder = copied()
    content = (folder / "tokenizer.model").read_bytes()
    position = 0
    for _ in range(300):  # tag, length below 128, piece
        position += 2 + content[position + 1]
    (folder / "tokenizer.model").write_bytes(content[:position])
    refuses(folder, "tokenizer.model", "300 pieces")


def test_a_sentencepiece_model_without_the_library(copied, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(ImportError, match=r"tokenizer.model .*pip install '\.\[sentencepiece\]'"):
        AutoVLMPolicy.from_pretrained(copied())


def test_missing_tokenizer_files(copied):
    folder = copied()
    (folder / "tokenizer.model").unlink()
    refuses(folder, "tokenizer.model")


def test_a_tokenizer_of_another_checkpoint(copied):
    folder = copied()
    shutil.copy(DATA.parent / "sentencepiece" / "dummy_prefix.model", folder / "tokenizer.model")
    refuses(folder, "llm_config.vocab_size is 592", "different checkpoints")
    shutil.copy(directory(INTERNLM2) / "tokenizer.model", folder / "tokenizer.model")
    edit(folder / "tokenizer_config.json", lambda config: config["added_tokens_decoder"].pop("585"))
    refuses(folder, "'<quad>'", "585", "586", "belongs to another checkpoint")
    shutil.copy(directory(INTERNLM2) / "tokenizer_config.json", folder / "tokenizer_config.json")
    edit(folder / "config.json", lambda config: config["llm_config"].update(vocab_size=500))
    refuses(folder, "llm_config.vocab_size is 500")


def test_an_unknown_tokenizer_class(copied):
    folder = copied()
    edit(folder / "tokenizer_config.json", lambda config: config.update(tokenizer_class="MyTokenizer"))
    refuses(folder, "MyTokenizer", error=UnsupportedModelError)


def test_code_in_the_checkpoint_never_runs(copied):
    folder = copied()
    mark = folder / "ran"
    for name in ("configuration_internvl_chat", "modeling_internvl_chat", "tokenization_internlm2"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    for trust in (False, True):
        AutoVLMPolicy.from_pretrained(folder, trust_remote_code=trust)
    convert(folder, folder.parent / "converted")
    assert not mark.exists()
    for name in ("config.json", "tokenizer_config.json"):
        assert "auto_map" not in (folder.parent / "converted" / name).read_text()


LIES = [
    ({"max_dynamic_patch": 10**9}, "Expected 1 <= min_tiles <= max_tiles <= 256", ValueError),
    ({"max_dynamic_patch": None}, "cannot be read (TypeError", CheckpointError),
    ({"force_image_size": 10**6}, "tiles of 1000000 pixels a side", UnsupportedModelError),
    ({"downsample_ratio": float("inf")}, "cannot be read (OverflowError", CheckpointError),
    ({"llm_config": 3}, "cannot be read (AttributeError", CheckpointError),
    ({"llm_config.vocab_size": {}}, "cannot be read (TypeError", CheckpointError),
    ({"llm_config.hidden_size": 10**18}, "cannot be read (RuntimeError", CheckpointError),
    (
        {"llm_config.num_hidden_layers": "x"},
        "Validation error for field 'num_hidden_layers'",
        CheckpointError,
    ),
    (
        {"llm_config.num_hidden_layers": 10**18},
        "has num_hidden_layers=1000000000000000000",
        UnsupportedModelError,
    ),
    ({"vision_config.num_hidden_layers": 10**6}, "has num_hidden_layers=1000000", UnsupportedModelError),
    ({"vision_config": -1}, "cannot be read (TypeError", CheckpointError),
    ({"vision_config.patch_size": 0}, "cannot be read (ZeroDivisionError", CheckpointError),
]


@pytest.mark.parametrize(("lies", "message", "error"), LIES, ids=[next(iter(each[0])) for each in LIES])
def test_a_config_with_absurd_values_is_named(copied, lies, message, error):
    folder = copied(QWEN2)

    def change(content):
        for key, value in lies.items():
            *above, last = key.split(".")
            place = content
            for name in above:
                place = place[name]
            place[last] = value

    edit(folder / "config.json", change)
    refuses(folder, message, error=error)
