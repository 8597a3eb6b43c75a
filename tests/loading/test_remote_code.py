"""Checkpoints that bring their classes: loaded by transformers' dynamic modules, and only on request."""

import json
import shutil
from textwrap import dedent

import pytest
import torch
import transformers.dynamic_module_utils
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy, UnsupportedModelError
from hf_vlm_rl.cli import main
from hf_vlm_rl.families.tiny import recipe
from hf_vlm_rl.families.tiny.weights import randomise
from tests.conformance.cases import native, no_image, one_image, tickets, two_images

# One image a tower call in stock, another grouping here.
ATOL = 2e-5

CONFIGURATION = """
    from transformers import LlavaConfig

    class EyesConfig(LlavaConfig):
        model_type = "eyes_vlm"
"""

MODELING = """
    from transformers import LlavaForConditionalGeneration, LlavaModel

    from .configuration_eyes import EyesConfig

    class EyesModel(LlavaModel):
        config_class = EyesConfig

        def get_image_features(self, pixel_values, **kwargs):
            # Its own: whoever runs LLaVA's code instead gets other features.
            output = super().get_image_features(pixel_values, **kwargs)
            output.pooler_output = [2 * features for features in output.pooler_output]
            return output

    class EyesForConditionalGeneration(LlavaForConditionalGeneration):
        config_class = EyesConfig

        def __init__(self, config):
            super().__init__(config)
            self.model = EyesModel(config)
            self.post_init()
"""

PROCESSING = """
    from transformers import ProcessorMixin

    class EyesProcessor(ProcessorMixin):
        def __init__(self, image_processor, tokenizer, chat_template=None):
            self.image_token = tokenizer.image_token
            self.image_token_id = tokenizer.image_token_id
            super().__init__(image_processor, tokenizer, chat_template=chat_template)

        def replace_image_token(self, image_inputs, image_idx, **kwargs):
            height, width = image_inputs["pixel_values"][image_idx].shape[-2:]
            return self.image_token * (height // 14 * (width // 14))
"""

AUTO_MAP = {
    "AutoConfig": "configuration_eyes.EyesConfig",
    "AutoModelForImageTextToText": "modeling_eyes.EyesForConditionalGeneration",
    "AutoProcessor": "processing_eyes.EyesProcessor",
}


@pytest.fixture(scope="module", autouse=True)
def imported_code(tmp_path_factory):
    """Where transformers copies code before it is imported; Python keeps one place for all tests."""
    directory = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", directory)
        patch.syspath_prepend(directory)
        yield


@pytest.fixture
def source(tmp_path):
    """A checkpoint of a class that only its own files define."""
    made = recipe("llava")
    directory = tmp_path / "checkpoint"
    model = AutoModelForImageTextToText.from_config(made.config, dtype=torch.float32)
    randomise(model, 0)
    model.save_pretrained(directory, save_original_format=False)  # LLaVA's key conversions are not its own
    made.processor.save_pretrained(directory)
    edit(directory / "config.json", model_type="eyes_vlm", auto_map=AUTO_MAP, architectures=["EyesModel"])
    edit(directory / "processor_config.json", processor_class="EyesProcessor", auto_map=AUTO_MAP)
    edit(directory / "tokenizer_config.json", processor_class="EyesProcessor")
    for name, code in (
        ("configuration", CONFIGURATION),
        ("modeling", MODELING),
        ("processing", PROCESSING),
    ):
        (directory / f"{name}_eyes.py").write_text(dedent(code))
    return directory


def edit(path, **values):
    stored = json.loads(path.read_text())
    for name in ("patch_size", "vision_feature_select_strategy", "num_additional_image_tokens"):
        if path.name == "processor_config.json":
            stored.pop(name, None)
    path.write_text(json.dumps(stored | values))


def load(directory):
    return AutoVLMPolicy.from_pretrained(directory, dtype="float32", trust_remote_code=True).eval()


def stock(directory):
    bare = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32, trust_remote_code=True)
    processor = AutoProcessor.from_pretrained(directory, padding_side="left", trust_remote_code=True)
    return bare.eval(), processor


def test_it_computes_what_the_code_of_the_checkpoint_computes(source):
    policy = load(source)
    bare, processor = stock(source)
    assert type(bare).__name__ == type(policy).__name__ == "EyesForConditionalGeneration"
    assert type(policy.processing_class).__name__ == "EyesProcessor"
    assert policy.family.vision == ("model.vision_tower",)
    assert policy.family.projector == ("model.multi_modal_projector",)
    assert not policy.family.missing
    rows = [one_image(), two_images(), no_image()]
    batch = tickets(policy.processing_class, rows)
    expected = native(processor, rows)
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    weight = torch.randn(policy.config.get_text_config().vocab_size, generator=torch.manual_seed(0))
    mask = batch["attention_mask"].bool()
    ours, theirs = policy(**batch).logits[mask], bare(**expected).logits[mask]
    torch.testing.assert_close(ours, theirs, atol=ATOL, rtol=0)
    (ours @ weight).mean().backward()
    (theirs @ weight).mean().backward()
    for (name, parameter), other in zip(policy.named_parameters(), bare.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None), name
        if other.grad is not None:
            torch.testing.assert_close(parameter.grad, other.grad, atol=1e-4, rtol=1e-4)
    sampled = policy.generate(**batch, max_new_tokens=4, do_sample=False)
    suppressed = list(policy.placeholder_ids)
    answers = bare.generate(**expected, max_new_tokens=4, do_sample=False, suppress_tokens=suppressed)
    assert torch.equal(sampled, answers)


def test_a_saved_policy_brings_the_code_along(source, tmp_path):
    policy = load(source)
    saved = tmp_path / "saved"
    policy.save_pretrained(saved)
    policy.processing_class.save_pretrained(saved)
    assert (saved / "modeling_eyes.py").exists()
    bare, _ = stock(saved)
    for (name, parameter), other in zip(policy.named_parameters(), bare.parameters(), strict=True):
        assert torch.equal(parameter, other), name
    again = load(saved)
    batch = tickets(again.processing_class, [one_image()])
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, policy(**batch).logits)


@pytest.mark.parametrize("trusted", [{}, {"trust_remote_code": False}])
def test_nothing_is_run_without_trust(source, trusted):
    for name in ("configuration", "modeling", "processing"):
        (source / f"{name}_eyes.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UnsupportedModelError, match="Expected trust_remote_code=True"):
        AutoVLMPolicy.from_pretrained(source, **trusted)


def test_check_says_what_it_is(source, capsys):
    main(["check", str(source), "--trust-remote-code"])
    assert "EyesForConditionalGeneration (family eyes_vlm" in capsys.readouterr().out


def test_code_without_a_chat_model_is_refused(source):
    edit(source / "config.json", auto_map={name: AUTO_MAP[name] for name in ("AutoConfig", "AutoProcessor")})
    with pytest.raises(UnsupportedModelError, match="AutoModelForImageTextToText"):
        load(source)


FOREIGN = {
    "processor_config.json": {"processor_class": "Nowhere", "auto_map": {"AutoProcessor": "evil.Evil"}},
    "tokenizer_config.json": {
        "tokenizer_class": "Nowhere",
        "auto_map": {"AutoTokenizer": ["evil.Evil", None]},
    },
    "preprocessor_config.json": {
        "image_processor_type": "Nowhere",
        "auto_map": {"AutoImageProcessor": "evil.Evil"},
    },
}


@pytest.mark.parametrize("beside", ["model", "adapter"])
@pytest.mark.parametrize("name", FOREIGN)
def test_code_of_a_processor_is_neither_run_nor_asked_for(
    name, beside, checkpoint, adapter_of, policy_for, tmp_path, monkeypatch
):
    def ask(*question):
        raise AssertionError(f"asked {question}")

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    shutil.copytree(checkpoint("internvl") if beside == "model" else adapter_of("internvl"), folder)
    if beside == "adapter":
        policy_for("internvl").processing_class.save_pretrained(folder)
    path = folder / name
    stored = json.loads(path.read_text()) if path.exists() else {}
    if name == "preprocessor_config.json":  # transformers 5 reads it where the processor's config has none
        whole = json.loads((folder / "processor_config.json").read_text())
        stored = whole.pop("image_processor", {})
        (folder / "processor_config.json").write_text(json.dumps(whole))
    path.write_text(json.dumps(stored | FOREIGN[name]))
    (folder / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    if (name, beside) == ("tokenizer_config.json", "model"):
        AutoVLMPolicy.from_pretrained(folder)  # transformers has the tokenizer of the model's type
    else:
        with pytest.raises(UnsupportedModelError, match=r"comes as code with it.*trust_remote_code=True"):
            AutoVLMPolicy.from_pretrained(folder)
    assert not (tmp_path / "ran").exists()
