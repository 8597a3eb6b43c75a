"""What would train without images, or on tickets as words, is refused before a weight moves."""

import warnings

import pytest
import torch
import trl
from datasets import Dataset, Image, List
from packaging.version import Version
from transformers import AutoModelForImageTextToText, GenerationConfig
from trl import GRPOConfig, GRPOTrainer

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.conversation import fill_images
from tests.data.stock import train
from tests.trainers.homes import home
from tests.trainers.ids_runs import RUNS, carried, conversations, prompts, trainer_of
from tests.trainers.runs import (
    PLAIN,
    ROLLOUT,
    by_ids,
    dpo,
    grpo,
    mixture,
    preferences,
    rloo,
    said,
    sft,
    square,
    user,
)

pytestmark = pytest.mark.trl

FAMILY = "qwen2_5_vl"
# What the message of each refusal names: the way that works.
WAY = r"policy\.tokenizer"
# Those that read a column of images by themselves; GRPO with a replay buffer fails on it, in lines of TRL.
READ_COLUMNS = (
    "GMPOTrainer",
    "GRPOTrainer",
    "GRPOWithReplayBufferTrainer",
    "OnlineDPOTrainer",
    "RLOOTrainer",
    "SFTTrainer",
)
# TRL's own words for a tokenizer, or a setting, that does not go with a column of images.
VISION = "vision|VLM"


def skip_without(name: str) -> None:
    home(RUNS[name].package, name)


def refused(name, policy, rows, out, match, **options) -> None:
    """A run on such rows ends with an error that matches, and no weight has moved."""
    before = {key: value.clone() for key, value in policy.named_parameters() if "lora" not in key}
    made = []

    def run():
        made.append(trainer_of(name, policy, Dataset.from_list(rows), out, **options))
        made[0].train()

    with pytest.raises((AttributeError, LookupError, TypeError, ValueError), match=match):
        run()
    assert all(trainer.state.global_step == 0 for trainer in made)
    after = dict(policy.named_parameters())
    assert all(value.equal(after[key]) for key, value in before.items() if key in after)


def with_blocks(row: dict) -> dict:
    """A row with its images in blocks of its first column of messages."""
    head = "prompt" if "prompt" in row else "messages"
    rest = {key: value for key, value in row.items() if key not in ("images", head)}
    return {head: fill_images(row[head], row["images"])} | rest


@pytest.mark.parametrize("name", RUNS)
def test_a_column_of_images_beside_a_tokenizer(name, policy_for, tmp_path):
    skip_without(name)
    refused(name, policy_for(FAMILY), RUNS[name].rows(square("cat")), tmp_path, f"{WAY}|{VISION}")


@pytest.mark.parametrize("name", ["BCOTrainer", "CPOTrainer", "ORPOTrainer", "TPOTrainer"])
def test_a_column_of_images_that_goes_to_workers(name, policy_for, tmp_path):
    skip_without(name)
    rows = RUNS[name].rows(square("cat"))
    refused(name, policy_for(FAMILY), rows, tmp_path, WAY, dataset_num_proc=2)


@pytest.mark.parametrize("name", RUNS)
def test_image_blocks_that_a_trainer_would_copy(name, policy_for, tmp_path):
    skip_without(name)
    rows = [with_blocks(row) for row in RUNS[name].rows(square("cat"))[:1] * 3]
    refused(name, policy_for(FAMILY), rows, tmp_path, WAY)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in READ_COLUMNS])
def test_the_processing_class_for_a_trainer_that_takes_a_tokenizer(name, policy_for, tmp_path):
    skip_without(name)
    policy = policy_for(FAMILY)
    rows = RUNS[name].rows(square("cat"))
    options = {"processing_class": policy.processing_class}
    refused(name, policy, rows, tmp_path, f"{WAY}|{VISION}|vision-language", **options)


@pytest.mark.parametrize("name", RUNS)
def test_the_native_tokenizer(name, policy_for, tmp_path):
    skip_without(name)
    policy = policy_for(FAMILY)
    rows = RUNS[name].rows(square("cat"))
    options = {"processing_class": policy.processing_class.tokenizer}
    refused(name, policy, rows, tmp_path, f"{WAY}|{VISION}", **options)


def test_labels_at_tickets(policy_for, tmp_path):
    policy = policy_for(FAMILY)
    rows = list(carried(policy, conversations(square("cat"))))
    trainer = sft(policy, rows, tmp_path, processing_class=policy.tokenizer)
    with pytest.raises(LookupError, match=r"labels at .* tokens of its images.*text_labels"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_reference_that_is_no_policy(policy_for, checkpoint, tmp_path):
    policy = policy_for(FAMILY)
    stock = AutoModelForImageTextToText.from_pretrained(checkpoint(FAMILY), dtype=torch.float32)
    rows = list(carried(policy, RUNS["DPOTrainer"].rows(square("cat"))))
    trainer = dpo(policy, rows, tmp_path, ref_model=stock, processing_class=policy.tokenizer)
    with pytest.raises(LookupError, match=r"ref_model of DPOTrainer .* reads the tickets of images as"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("name", ["model", "ref_model"])
def test_a_stock_model_with_the_processing_class_of_a_policy(name, policy_for, checkpoint, tmp_path):
    """As `ref_model`, what DPO loads by itself where peft_config was forgotten."""
    policy = policy_for(FAMILY)
    stock = AutoModelForImageTextToText.from_pretrained(checkpoint(FAMILY), dtype=torch.float32)
    given = {name: stock, "model": stock if name == "model" else policy}
    trainer = trl.DPOTrainer(
        **given,
        args=trl.DPOConfig(str(tmp_path), max_steps=1, **PLAIN),
        processing_class=policy.processing_class,
        train_dataset=Dataset.from_list(list(RUNS["DPOTrainer"].rows(square("cat")))),
    )
    with pytest.raises(LookupError, match=rf"The {name} of DPOTrainer .* as words\..*peft_config="):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("train", [dpo, grpo, rloo], ids=["dpo", "grpo", "rloo"])
def test_a_forgotten_peft_config_is_told_with_every_way_out(train, policy_for, tmp_path):
    """TRL loads a stock reference then; tests/trainers/test_full_weights.py takes the ways out."""
    rows = preferences(FAMILY) if train is dpo else mixture(FAMILY)
    trainer = train(policy_for(FAMILY), rows, tmp_path, beta=0.1)
    ways = (
        r"hf_vlm_rl\.register\(\)",
        r"peft_config=policy\.lora_config\(\)",
        r"GRPO and RLOO with beta=0\.",
    )
    with pytest.raises(LookupError, match="ref_model of .*" + ".*".join(ways)):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("name", "limit", "tokens"),
    [
        ("A2POTrainer", "max_prompt_length", 20),
        ("GKDTrainer", "max_length", 30),
        ("SDFTTrainer", "max_prompt_length", 30),
    ],
)
def test_a_length_limit_that_cuts_an_image(name, limit, tokens, policy_for, tmp_path):
    skip_without(name)
    policy = policy_for(FAMILY)
    rows = list(carried(policy, RUNS[name].rows(square("cat"))[:1] * 3))
    refused(name, policy, rows, tmp_path, r"cut.*(raise the trainer|Raise the trainer)", **{limit: tokens})


def test_continuous_batching(policy_for):
    policy = policy_for(FAMILY)
    ids = policy.tokenizer.apply_chat_template(carried(policy, prompts(square("cat")))[0]["prompt"])[
        "input_ids"
    ]
    with pytest.raises(LookupError, match=r"Row 1 has images.*use_transformers_continuous_batching=False"):
        policy.generate_batch([[5, 6, 7], ids], generation_config=GenerationConfig(max_new_tokens=2))


def test_grpo_with_continuous_batching(policy_for, tmp_path):
    if "use_transformers_continuous_batching" not in GRPOConfig.__dataclass_fields__:
        pytest.skip("this TRL calls it paged")
    policy = policy_for(FAMILY)
    sizes = {"per_device_train_batch_size": 2, "num_generations": 2, "max_steps": 1}
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.tokenizer,
        reward_funcs=by_ids,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            use_transformers_continuous_batching=True,
            **PLAIN | ROLLOUT | sizes,
        ),
        train_dataset=carried(policy, prompts(square("cat"))[:2] * 3),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(LookupError, match="continuous batching takes ids alone"):
            trainer.train()
    assert trainer.state.global_step == 0


def test_vllm(policy_for, tmp_path):
    policy = policy_for(FAMILY)
    trainer = trainer_of("GRPOTrainer", policy, carried(policy, prompts(square("cat"))), tmp_path)
    trainer.args.use_vllm = True
    with pytest.raises(ValueError, match="GRPOTrainer has use_vllm set and this tokenizer"):
        trainer.train()


def test_a_family_whose_prompts_attend_in_both_directions(policy_for):
    policy = policy_for("paligemma")
    with pytest.raises(ValueError, match=r"attend in both directions.*policy\.processing_class"):
        _ = policy.tokenizer


@pytest.mark.parametrize("made", [grpo, sft])
def test_a_column_of_images_by_another_name_is_refused(made, policy_for, tmp_path):
    policy = policy_for(FAMILY)
    row = {"prompt": user("What is it?"), "img": square("cat")}
    row |= {} if made is grpo else {"completion": said("A cup.")}
    trainer = made(policy, [row] * 4, tmp_path, peft=policy.lora_config(r=4))
    with pytest.raises(ImageError, match=r"has images in \['img'\]: it would train without images"):
        trainer.train()
    assert trainer.state.global_step == 0


def named_img(images) -> Dataset:
    rows = Dataset.from_list([{"prompt": user("What is it?"), "img": image} for image in images])
    return rows.cast_column("img", Image())


def encoded(name: str) -> dict:
    return Image().encode_example(square(name))


def test_a_stream_with_a_column_of_images_by_another_name_is_refused(policy_for, tmp_path):
    if Version(trl.__version__) < Version("1.12"):
        pytest.skip("GRPOTrainer of TRL 1.0 refuses streams")
    stream = named_img([None, *[encoded("cat")] * 7]).to_iterable_dataset()
    with pytest.raises(ImageError, match=r"has images in \['img'\]: it would train without images"):
        train("GRPO", policy_for(FAMILY), stream, tmp_path)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("empty", [None, [None]], ids=str)
def test_a_column_by_another_name_without_any_image_trains(empty, streamed, policy_for, tmp_path):
    if streamed and Version(trl.__version__) < Version("1.12"):
        pytest.skip("GRPOTrainer of TRL 1.0 refuses streams")
    rows = Dataset.from_list([{"prompt": user("What is it?"), "img": empty}] * 8)
    rows = rows.cast_column("img", Image() if empty is None else List(Image()))
    steps = train("GRPO", policy_for(FAMILY), rows.to_iterable_dataset() if streamed else rows, tmp_path)
    assert len(steps) == 2


def test_looking_for_a_column_of_images_decodes_none(policy_for, tmp_path):
    images = [encoded("cat") for _ in range(8)]
    images[-1]["bytes"] = images[-1]["bytes"][:-1000]  # of a row that no step would read
    with pytest.raises(ImageError, match=r"has images in \['img'\]: it would train without images"):
        train("GRPO", policy_for(FAMILY), named_img(images), tmp_path)


@pytest.mark.parametrize("images", [True, False])
def test_the_processing_class_of_another_model_is_refused(images, policy_for, tmp_path):
    policy, other = policy_for("qwen2_5_vl"), policy_for("qwen3_vl").processing_class
    row = {"prompt": user("What is it?")} | ({"images": [square("cat")]} if images else {})
    trainer = grpo(policy, [row] * 4, tmp_path, processing_class=other, peft=policy.lora_config(r=4))
    with pytest.raises(ImageError, match=r"processing class of another model .*qwen3_vl.*qwen2_5_vl"):
        trainer.train()
    assert trainer.state.global_step == 0
