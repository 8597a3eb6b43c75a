"""Each error of docs/errors.md comes as it is quoted, and goes by the cure that stands beside it."""

import re
import warnings

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    Qwen2Config,
    Qwen2ForCausalLM,
    logging,
)
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from hf_vlm_rl import AutoVLMPolicy, CheckpointError
from hf_vlm_rl.data import filter_overlong
from tests.documents.pages import PAGES
from tests.images import photo
from tests.trainers.runs import PLAIN, said, user

_, *PARTS = re.split(r"^## (.*)$", PAGES["docs/errors.md"].read_text(), flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
QUOTES = {title: re.match(r"\s+(`+)(.*?)\1", text)[2] for title, text in SECTIONS.items()}
CAT = photo("cat", (112, 112))
SHORT = {**PLAIN, "max_steps": 1}
ROLLOUT = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 3}
ROWS = [{"prompt": user("What is it?"), "images": [CAT]}] * 4
MIXED = [*ROWS[:1], {"prompt": user("What?"), "images": []}] * 2
PAIRS = [row | {"completion": said("A cat.")} for row in ROWS]


class Case:
    """A stock model with its processor, a policy, and a folder."""

    def __init__(self, folder, path, policy):
        self.folder, self.path, self.policy = folder, path, policy
        self.encode = policy.processing_class
        self.processor = AutoProcessor.from_pretrained(path)
        message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
        self.text = self.processor.apply_chat_template([message], add_generation_prompt=True)

    def stock(self):
        return AutoModelForImageTextToText.from_pretrained(self.path)

    def batch(self, text=None, count=1):
        return self.processor(images=[CAT] * count, text=[text or self.text], return_tensors="pt")

    def grpo(self, model, processing_class, rows=ROWS):
        args = GRPOConfig(output_dir=str(self.folder / "grpo"), **SHORT, **ROLLOUT)
        return GRPOTrainer(
            model=model,
            processing_class=processing_class,
            reward_funcs=lambda completions, **_: [float(i) for i in range(len(completions))],
            train_dataset=Dataset.from_list(rows),
            args=args,
        )

    def sft(self, model, processing_class, rows=PAIRS, **options):
        args = SFTConfig(output_dir=str(self.folder / "sft"), **SHORT | options)
        rows = Dataset.from_list(rows) if isinstance(rows, list) else rows
        return SFTTrainer(model=model, processing_class=processing_class, train_dataset=rows, args=args)


@pytest.fixture
def case(tmp_path, checkpoint, policy_for):
    return Case(tmp_path, checkpoint("qwen2_5_vl"), policy_for("qwen2_5_vl"))


def a_cut_row(case):
    batch, model = case.batch(), case.stock()
    place = (batch["input_ids"][0] == model.config.image_token_id).nonzero()[0].item()
    ids = ("input_ids", "attention_mask", "mm_token_type_ids")
    kept = torch.arange(batch["input_ids"].shape[1]) != place
    model(**{name: value[:, kept] if name in ids else value for name, value in batch.items()})


def a_whole_row(case):
    assert case.policy(**case.encode([CAT], [case.text], return_tensors="pt")).logits.isfinite().all()


def truncation(case):
    case.processor(images=[CAT], text=[case.text], truncation=True, max_length=8)


def a_short_limit(case):
    case.sft(case.stock(), case.processor, max_length=8).train()


def no_limit(case):
    case.sft(case.policy, case.encode, max_length=None).train()


def two_marks(case):
    case.batch(case.text.replace("<|image_pad|>", "<|image_pad|>" * 2))


def two_blocks_and_two_images(case):
    message = {"role": "user", "content": [{"type": "image"}, {"type": "image"}]}
    text = case.encode.apply_chat_template([message], tokenize=False)
    assert case.policy(**case.encode([[CAT, CAT]], [text], return_tensors="pt")).logits.isfinite().all()


def a_tokenizer_for_images(case):
    case.grpo(case.stock(), case.processor.tokenizer).train()


def the_policys_class(case):
    case.grpo(case.policy, case.encode).train()


def mixed_rows(case):
    case.grpo(case.stock(), case.processor, MIXED).train()


def mixed_rows_of_a_policy(case):
    case.grpo(case.policy, case.encode, MIXED).train()


def a_prompt_of_text(case):
    case.grpo(case.stock(), case.processor, [row | {"prompt": "What is it?"} for row in ROWS]).train()


def packing(case):
    case.sft(case.stock(), case.processor, packing=True)


def packed_tickets(case):
    tokenizer = case.policy.tokenizer
    rows = Dataset.from_list(PAIRS).map(tokenizer.with_tickets, remove_columns="images")
    case.sft(case.policy, tokenizer, rows, packing=True, max_length=256).train()


def a_language_model(case):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=len(case.processor.tokenizer), **sizes, **heads)
    case.sft(Qwen2ForCausalLM(config), case.processor.tokenizer)


def a_limit_of_prompts(case):
    GRPOConfig(output_dir="out", use_cpu=True, bf16=False, max_prompt_length=512)


def long_rows_left_out(case):
    rows = Dataset.from_list([*ROWS, {"prompt": user("What is it? " * 50), "images": [CAT]}])
    assert filter_overlong(rows, case.encode, 100)[1].dropped == [4]


def a_causal_model(case):
    AutoModelForCausalLM.from_pretrained(case.path)


def a_policy(case):
    AutoVLMPolicy.from_pretrained(case.path)


def a_processor_for_a_tokenizer(case):
    case.processor.eos_token_id  # noqa: B018


def a_policys_tokens(case):
    assert (
        case.encode.eos_token_id
        == case.policy.tokenizer.eos_token_id
        == case.processor.tokenizer.eos_token_id
    )


def the_outer_config(case):
    case.stock().config.hidden_size  # noqa: B018


def the_text_config(case):
    assert case.policy.config.get_text_config().hidden_size > 0


def right_padding(case):
    texts = [case.text, case.text.replace("What", "What on earth")]
    case.processor.tokenizer.padding_side = "right"
    batch = case.processor(images=[CAT, CAT], text=texts, return_tensors="pt", padding=True)
    case.stock().generate(**batch, max_new_tokens=1)


def left_padding(case):
    texts = [case.text, case.text.replace("What", "What on earth")]
    batch = case.encode([[CAT], [CAT]], texts, return_tensors="pt", padding=True)
    assert batch["attention_mask"][:, -1].tolist() == [1, 1]
    case.policy.generate(**batch, max_new_tokens=1)


def names_of_another_model(case):
    get_peft_model(case.stock(), LoraConfig(target_modules=["query"]))


def names_of_this_model(case):
    get_peft_model(AutoVLMPolicy.from_pretrained(case.path), case.policy.lora_config(r=2))


def an_adapter_of_other_names(case):
    model = get_peft_model(case.stock(), LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    model.save_pretrained(case.folder / "adapter")
    file = case.folder / "adapter" / "adapter_model.safetensors"
    save_file({name.replace("language_model.", ""): value for name, value in load_file(file).items()}, file)
    PeftModel.from_pretrained(case.stock(), case.folder / "adapter")


def the_adapter_is_refused(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        an_adapter_of_other_names(case)
    with pytest.raises((CheckpointError, ValueError)):
        AutoVLMPolicy.from_pretrained(case.folder / "adapter", base_model=case.path)


def of_nan(case):
    model = case.stock()
    model.lm_head.weight.data.fill_(float("nan"))
    return model


def sampled_from_nan(case):
    of_nan(case).generate(**case.batch(), max_new_tokens=1, do_sample=True)


def the_likeliest_of_nan(case):
    batch = case.batch()
    ids = of_nan(case).generate(**batch, max_new_tokens=3, do_sample=False)
    raise ValueError(case.processor.decode(ids[0, batch["input_ids"].shape[1] :]))


PROVOKED = {
    "Image features and image tokens do not match": (a_cut_row, a_whole_row),
    "Mismatch in image token count": (truncation, a_whole_row),
    "max_length is too short": (a_short_limit, no_limit),
    "Number of placeholders and images": (two_marks, two_blocks_and_two_images),
    "KeyError: 'pixel_values'": (a_tokenizer_for_images, the_policys_class),
    "Rows with and without images": (mixed_rows, mixed_rows_of_a_policy),
    "Prompts have to be conversational": (a_prompt_of_text, the_policys_class),
    "Packing is not supported for vision datasets": (packing, packed_tickets),
    "Dataset is vision-related, model is not": (a_language_model, no_limit),
    "max_prompt_length": (a_limit_of_prompts, long_rows_left_out),
    "Unrecognized configuration class for AutoModelForCausalLM": (a_causal_model, a_policy),
    "Processor has no eos_token_id": (a_processor_for_a_tokenizer, a_policys_tokens),
    "Config has no hidden_size": (the_outer_config, the_text_config),
    "Right padding was detected": (right_padding, left_padding),
    "Target modules not found in the base model": (names_of_another_model, names_of_this_model),
    "Found missing adapter keys": (an_adapter_of_other_names, the_adapter_is_refused),
    "Probability tensor contains inf or nan": (sampled_from_nan, a_whole_row),
    'Completions are "!!!!"': (the_likeliest_of_nan, a_whole_row),
}
ERRORS = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)


def test_what_is_not_provoked_says_so():
    assert len(SECTIONS) >= 20
    confessed = {title for title, text in SECTIONS.items() if "Not provoked" in " ".join(text.split())}
    assert confessed == SECTIONS.keys() - PROVOKED


@pytest.mark.parametrize("title", PROVOKED)
def test_the_error_comes_as_quoted_and_goes(title, case, caplog):
    provoke, cure = PROVOKED[title]
    logging.get_logger("transformers").propagate = True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            provoke(case)
            said_so = ""
        except ERRORS as error:
            said_so = f"{type(error).__name__}: {error}"
    logging.get_logger("transformers").propagate = False
    heard = " ".join([said_so, caplog.text, *(str(each.message) for each in warned)])
    assert QUOTES[title] in " ".join(heard.split())
    cure(case)
