"""`AutoVLMPolicy`: what it loads, with which options, and what it says when it cannot."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from hf_vlm_rl import AutoVLMPolicy, CheckpointError, UnsupportedModelError
from hf_vlm_rl.processing.images.bounds import with_options
from tests.images import photo

WIDE = photo("coffee", (600, 160))


@pytest.fixture
def copied(checkpoint, tmp_path):
    """`copied(family)`: a checkpoint directory that a test may change."""

    def copy(family):
        return shutil.copytree(checkpoint(family), tmp_path / family)

    return copy


def edit(path, **changes) -> None:
    """Set keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def image_tokens(policy, image=WIDE) -> int:
    processing = policy.processing_class
    ids = processing(images=image, text=processing.image_token)["input_ids"][0]
    return list(ids).count(processing.codec.placeholder_id)


def run_python(code: str, *arguments, **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = os.environ | {"HF_HUB_OFFLINE": "1"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("written", ['["internvl"]', '{"internvl": 1}', "5", "0.5", "true"])
def test_a_model_type_that_is_no_text_is_refused(tmp_path, written):
    (tmp_path / "config.json").write_text(f'{{"model_type": {written}}}')
    with pytest.raises(CheckpointError, match=r"has the model_type .*Expected a name"):
        AutoVLMPolicy.from_pretrained(tmp_path)


@pytest.mark.parametrize("model_type", ["nonsense", "llava_llama", None])
def test_an_unknown_model_type_says_how_to_make_it_known(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(UnsupportedModelError) as caught:
        AutoVLMPolicy.from_pretrained(tmp_path)
    message = str(caught.value)
    assert f"{str(tmp_path)!r} has model_type {model_type!r}" in message
    assert f"AutoConfig.register({model_type!r}, ...)" in message


def test_a_directory_without_a_config_is_refused(copied, tmp_path):
    with pytest.raises(CheckpointError, match=f"{str(tmp_path)!r} has no config.json. Expected a directory"):
        AutoVLMPolicy.from_pretrained(tmp_path)
    # The output directory of a trainer has its checkpoints in folders.
    checkpoint = copied("internvl")
    with pytest.raises(CheckpointError, match=f"has no config.json.*Did you mean {str(checkpoint)!r}"):
        AutoVLMPolicy.from_pretrained(tmp_path)


def lacking(directory, part) -> list[str]:
    """Take the weights of a module out of a checkpoint; returns their names."""
    weights = load_file(directory / "model.safetensors")
    removed = [name for name in weights if part in name]
    save_file(
        {name: weight for name, weight in weights.items() if name not in removed},
        directory / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert removed
    return removed


@pytest.mark.parametrize("part", ["layers.1.mlp", "lm_head", "visual", ".norm."])
def test_a_checkpoint_without_some_of_its_weights_is_refused(part, copied):
    directory = copied("qwen2_5_vl")
    removed = lacking(directory, part)
    with pytest.raises(
        CheckpointError, match=rf"lacks {len(removed)} of \d+ weights.*allow_missing="
    ) as caught:
        AutoVLMPolicy.from_pretrained(directory)
    assert part.strip(".") in str(caught.value)


def test_weights_may_be_missing_by_name(copied):
    directory = copied("qwen2_5_vl")
    lacking(directory, "lm_head")
    AutoVLMPolicy.from_pretrained(directory, allow_missing=["lm_head"])
    lacking(directory, "layers.1.mlp")
    with pytest.raises(CheckpointError, match=r"lacks 3 of .*layers\.1\.mlp"):
        AutoVLMPolicy.from_pretrained(directory, allow_missing=["lm_head"])
    with pytest.raises(ValueError, match=r"Expected a list, such as \['lm_head'\]"):
        AutoVLMPolicy.from_pretrained(directory, allow_missing="lm_head")


def test_a_language_model_without_vision_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with pytest.raises(UnsupportedModelError, match=r"'qwen2': it is a language model without vision"):
        AutoVLMPolicy.from_pretrained(tmp_path)


def test_a_checkpoint_without_its_image_processor_names_the_missing_files(copied):
    directory = copied("internvl")
    (directory / "processor_config.json").unlink()
    with pytest.raises((OSError, UnsupportedModelError), match=r"preprocessor_config\.json"):
        AutoVLMPolicy.from_pretrained(directory)


def test_a_tokenizer_in_place_of_a_processor_is_refused(checkpoint):
    directory = checkpoint("internvl")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    with pytest.raises(UnsupportedModelError, match=r"Got a Qwen2Tokenizer.*Expected its processor"):
        AutoVLMPolicy.from_config(AutoConfig.from_pretrained(directory), tokenizer)


@pytest.mark.parametrize(
    ("family", "options"),
    [("internvl", {"min_patches": 2, "max_patches": 3}), ("qwen2_5_vl", {"max_pixels": 30000})],
)
def test_options_are_set_as_if_the_checkpoint_were_read_with_them(checkpoint, family, options):
    read = AutoProcessor.from_pretrained(checkpoint(family), **options).image_processor
    made = with_options(AutoProcessor.from_pretrained(checkpoint(family)).image_processor, options)
    assert type(made) is type(read)
    assert {name: repr(value) for name, value in vars(made).items()} == {
        name: repr(value) for name, value in vars(read).items()
    }


def test_the_class_itself_cannot_be_instantiated():
    with pytest.raises(OSError, match=r"AutoVLMPolicy.from_pretrained\(id\)"):
        AutoVLMPolicy()
    with pytest.raises(OSError, match=r"AutoVLMPolicy.from_pretrained\('user/model'\)"):
        AutoVLMPolicy("user/model", dtype="bfloat16")


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("internvl", {"max_tiles": 0}, "Got max_tiles=0. Expected a whole number from 1 to 256"),
        ("internvl", {"max_tiles": 10**6}, "from 1 to 256"),
        ("internvl", {"max_tiles": 2.5}, "Got max_tiles=2.5"),
        ("internvl", {"min_tiles": 13}, "Got min_tiles=13 and max_tiles=6"),
        ("internvl", {"min_tiles": 3, "max_tiles": 2}, "Expected min_tiles <= max_tiles"),
        ("qwen2_5_vl", {"max_pixels": -1}, "Got max_pixels=-1. Expected a whole number from 1 on"),
        ("qwen2_5_vl", {"max_pixels": 100}, "Got min_pixels=12544 and max_pixels=100"),
        ("qwen2_5_vl", {"min_pixels": 10**7}, "Expected min_pixels <= max_pixels: give both"),
    ],
)
def test_image_options_have_bounds(checkpoint, family, options, message):
    with pytest.raises(ValueError, match=message):
        AutoVLMPolicy.from_pretrained(checkpoint(family), **options)


@pytest.mark.parametrize(
    ("family", "option"),
    [
        ("internvl", "min_pixels"),
        ("internvl", "max_pixels"),
        ("qwen2_5_vl", "max_tiles"),
        ("llava", "min_tiles"),
    ],
)
def test_an_image_option_of_another_family_is_refused(checkpoint, family, option):
    with pytest.raises(ValueError, match=f"Got {option} for a {family} model. It takes"):
        AutoVLMPolicy.from_pretrained(checkpoint(family), **{option: 4})


def test_the_number_of_tiles_is_bounded(checkpoint):
    directory = checkpoint("internvl")
    # 16 tokens a tile; more than one tile brings a thumbnail.
    assert image_tokens(AutoVLMPolicy.from_pretrained(directory, max_tiles=1)) == 16
    assert image_tokens(AutoVLMPolicy.from_pretrained(directory, max_tiles=2)) == 48
    square = photo("cat", (112, 112))
    assert image_tokens(AutoVLMPolicy.from_pretrained(directory), square) == 16
    policy = AutoVLMPolicy.from_pretrained(directory, min_tiles=4, max_tiles=4)
    assert image_tokens(policy, square) == 80


@pytest.mark.filterwarnings("error::FutureWarning")
def test_the_number_of_pixels_is_bounded(checkpoint):
    directory = checkpoint("qwen2_5_vl")
    area = 28 * 28  # pixels of one merged patch
    few = image_tokens(AutoVLMPolicy.from_pretrained(directory, min_pixels=4 * area, max_pixels=20 * area))
    assert 4 <= few <= 20
    many = image_tokens(AutoVLMPolicy.from_pretrained(directory, min_pixels=60 * area, max_pixels=90 * area))
    assert 60 <= many <= 90


@pytest.mark.parametrize(
    ("family", "option", "value"), [("internvl", "max_tiles", 30), ("qwen2_5_vl", "max_pixels", 30_000)]
)
def test_an_image_option_is_saved_with_the_image_processor_only(checkpoint, tmp_path, family, option, value):
    policy = AutoVLMPolicy.from_pretrained(checkpoint(family), **{option: value})
    policy.processing_class.save_pretrained(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint(family), padding_side="left")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    ours, native = (
        json.loads((tmp_path / folder / "tokenizer_config.json").read_text())
        for folder in ("saved", "tokenizer")
    )
    assert set(ours) - set(native) <= {"processor_class"}
    saved = json.loads((tmp_path / "saved" / "processor_config.json").read_text())["image_processor"]
    assert (saved["max_patches"] if family == "internvl" else saved["size"]["longest_edge"]) == value


@pytest.mark.slow
@pytest.mark.skipif(Version(version("trl")) < Version("1.8"), reason="register() needs TRL 1.8")
@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_after_register_configs_name_the_stock_architecture_as_well(checkpoint, family):
    """What engines in the same process go by: vLLM takes the first architecture of the list that it knows."""
    stock = AutoConfig.from_pretrained(checkpoint(family))
    code = (
        "import json, sys, transformers; from hf_vlm_rl import AutoVLMPolicy, register; register()\n"
        "config = transformers.AutoConfig.from_pretrained(sys.argv[1])\n"
        "again = type(config).from_dict(config.to_dict())\n"
        "policy = AutoVLMPolicy.from_pretrained(sys.argv[1])\n"
        "print(json.dumps([type(config).__name__, config.architectures, again.architectures,\n"
        "    policy.config.architectures, hasattr(transformers, config.architectures[0])]))\n"
    )
    name, architectures, again, loaded, known = json.loads(run_python(code, checkpoint(family)).stdout)
    assert name == type(stock).__name__
    assert architectures == again == ["AutoVLMPolicy", *stock.architectures]
    assert not known  # TRL asks AutoModelForCausalLM for what transformers does not have
    assert loaded == stock.architectures


@pytest.mark.slow
@pytest.mark.skipif(Version(version("trl")) < Version("1.8"), reason="register() needs TRL 1.8")
@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_after_register_model_options_reach_the_model(checkpoint, family):
    code = (
        "import json, sys, transformers; from hf_vlm_rl import register; register()\n"
        "load = transformers.AutoModelForCausalLM.from_pretrained\n"
        "policy = load(sys.argv[1], attn_implementation='eager', dtype='bfloat16', output_attentions=True)\n"
        "config = policy.config\n"
        "print(json.dumps([config._attn_implementation, config.text_config._attn_implementation,\n"
        "    str(policy.dtype), config.output_attentions, config.architectures,\n"
        "    'auto_map' in vars(config)]))\n"
    )
    attention, decoders, dtype, given, architectures, mapped = json.loads(
        run_python(code, checkpoint(family)).stdout
    )
    assert (attention, decoders, dtype, given) == ("eager", "eager", "torch.bfloat16", True)
    assert architectures == AutoConfig.from_pretrained(checkpoint(family)).architectures
    assert not mapped


def test_model_options_reach_the_model(checkpoint):
    policy = AutoVLMPolicy.from_pretrained(
        checkpoint("internvl"), dtype=torch.bfloat16, attn_implementation="eager"
    )
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.bfloat16}
    assert policy.config._attn_implementation == "eager"
    assert policy.config.text_config._attn_implementation == "eager"
    default = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32")
    assert default.config._attn_implementation == "sdpa"


def test_a_given_config_is_used(checkpoint):
    config = AutoConfig.from_pretrained(checkpoint("internvl"))
    config.text_config.num_hidden_layers = 1
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), config=config)
    assert len(policy.model.language_model.layers) == 1


def test_the_loaded_object_is_the_stock_model(checkpoint):
    directory = checkpoint("llava")
    policy = AutoVLMPolicy.from_pretrained(directory, dtype="float32")
    stock = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32)
    assert isinstance(policy, type(stock))
    assert type(policy.config) is type(stock.config)
    ours, theirs = policy.state_dict(), stock.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_policy_from_a_config_has_its_own_weights(checkpoint):
    directory = checkpoint("internvl")
    config = AutoConfig.from_pretrained(directory)
    policy = AutoVLMPolicy.from_config(config, AutoProcessor.from_pretrained(directory), dtype=torch.float64)
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float64}
    processing = policy.processing_class
    batch = processing(images=WIDE, text=processing.image_token, return_tensors="pt")
    with torch.no_grad():
        assert torch.isfinite(policy(**batch).logits).all()


def test_a_loaded_model_becomes_a_policy_in_place_and_only_once(checkpoint):
    directory = checkpoint("internvl")
    model = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(directory)
    policy = AutoVLMPolicy.from_model(model, processor)
    assert policy is model
    assert policy.processing_class is processor
    kind, backbone = type(policy), type(policy.model)
    assert AutoVLMPolicy.from_model(policy, AutoProcessor.from_pretrained(directory)) is policy
    assert (type(policy), type(policy.model)) == (kind, backbone)
    assert policy.processing_class is processor


def test_a_missing_pad_token_becomes_the_end_token(copied):
    directory = copied("llava")
    edit(directory / "tokenizer_config.json", pad_token=None)
    edit(directory / "generation_config.json", pad_token_id=None)
    edit(directory / "config.json", pad_token_id=None)
    policy = AutoVLMPolicy.from_pretrained(directory)
    processing = policy.processing_class
    assert processing.pad_token == processing.eos_token
    assert policy.generation_config.pad_token_id is not None


@pytest.mark.parametrize(("known", "expected"), [(None, "eos"), (5, [5, "eos"]), ([5, 6], [5, 6, "eos"])])
def test_generation_stops_at_the_tokenizers_end_token(copied, known, expected):
    directory = copied("internvl")
    edit(directory / "generation_config.json", eos_token_id=known)
    policy = AutoVLMPolicy.from_pretrained(directory)
    end = policy.processing_class.eos_token_id
    stops = [end if stop == "eos" else stop for stop in expected] if known else end
    assert policy.generation_config.eos_token_id == stops


def test_code_in_the_checkpoint_is_not_run(copied, tmp_path):
    directory = copied("internvl")
    marker = tmp_path / "marker"
    (directory / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
    for name in ("AutoConfig", "AutoProcessor", "AutoModelForImageTextToText"):
        for file in ("config.json", "processor_config.json"):
            edit(directory / file, auto_map={name: "evil.Evil"})
        policy = AutoVLMPolicy.from_pretrained(directory)
        assert policy.family.model_type == "internvl"
    assert not marker.exists()


def test_importing_the_library_imports_no_framework():
    done = run_python(
        "import sys, hf_vlm_rl\n"
        "dir(hf_vlm_rl), hf_vlm_rl.__version__, hf_vlm_rl.ImageError\n"
        "print(*sorted({'torch', 'transformers', 'trl', 'PIL', 'numpy', 'datasets'} & set(sys.modules)))"
    )
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_the_whole_public_interface_needs_no_trl():
    done = run_python(
        "import sys, hf_vlm_rl\n"
        "for name in hf_vlm_rl.__all__: getattr(hf_vlm_rl, name)\n"
        "print('trl' in sys.modules, 'transformers' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "True"]


def test_an_unknown_attribute_of_the_package_is_an_attribute_error():
    import hf_vlm_rl

    with pytest.raises(AttributeError, match="has no attribute 'AutoVLM'"):
        _ = hf_vlm_rl.AutoVLM


def test_a_mistyped_argument_is_named_with_the_one_that_was_meant(checkpoint, tmp_path):
    with pytest.raises(TypeError, match=r"unknown argument 'max_pixel'\. Did you mean 'max_pixels'"):
        AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), max_pixel=1)
    with pytest.raises(TypeError, match=r"'output_hidden_states'\. What a config has is set there: config="):
        AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), output_hidden_states=True)
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), config=str(checkpoint("qwen2_5_vl")))
    get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False)).save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=r"unknown argument 'dtypes'\. Did you mean 'dtype'"):
        AutoVLMPolicy.from_pretrained(tmp_path, dtypes="float32")


def test_a_subfolder_that_is_not_there_is_named(checkpoint):
    with pytest.raises(CheckpointError, match=r"Subfolder 'nope' of .*qwen2_5_vl' has no config\.json"):
        AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), subfolder="nope")
