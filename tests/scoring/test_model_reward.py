"""`ModelReward`: scores are the reward model's own, whatever form the rows and the batch have."""

import copy
import math

import pytest
import torch
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy, ColumnError, ImageError, ModelReward
from tests.conformance.cases import ALL
from tests.trainers.runs import cat, cup, mixture, said, user

FAMILY = "qwen2_5_vl"
ANSWERS = ("A red cup.", "Nothing at all, no.", "Hello.")


def expected(model, rows, answers=ANSWERS) -> list[float]:
    """Of one forward each, on what `encode_prompt` makes of the same chat for RewardTrainer."""
    processing, scores = model.processing_class, []
    for row, answer in zip(rows, answers, strict=True):
        encoded = processing.encode_prompt([*row["prompt"], *said(answer)], row["images"])
        with torch.no_grad():
            scores.append(model(**processing.pad([encoded], return_tensors="pt")).logits.item())
    return scores


def columns(rows) -> dict[str, list]:
    return {"prompts": [row["prompt"] for row in rows], "images": [row["images"] for row in rows]}


def in_blocks(row) -> list[dict]:
    blocks = [{"type": "image", "image": image} for image in row["images"]]
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": row["prompt"][0]["content"]}]}]


def equal(values):
    # Scores are sums of numbers of size 1, rounded as such.
    return pytest.approx(values, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("family", ALL)
def test_scores_are_those_of_the_chat_with_one_image_two_and_none(family, value_for):
    model, rows = value_for(family), mixture(family)
    assert ModelReward(model, batch_size=1)(list(ANSWERS), **columns(rows)) == equal(expected(model, rows))


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_rows_may_have_images_in_blocks_and_answers_of_messages(batch_size, value_for):
    model, rows = value_for(FAMILY), mixture(FAMILY)
    reward, scores = ModelReward(model, batch_size=batch_size), expected(model, rows)
    messages = list(map(said, ANSWERS))
    assert reward(messages, **columns(rows)) == equal(scores)
    prompts = list(map(in_blocks, rows))
    assert reward(messages, prompts=prompts) == equal(scores)
    # GRPO gives both.
    assert reward(messages, prompts=prompts, images=[row["images"] for row in rows]) == equal(scores)
    single = [None if not row["images"] else row["images"][0] for row in (rows[0], rows[2])]
    given = {"prompts": [rows[0]["prompt"], rows[2]["prompt"]], "image": single}
    assert reward([messages[0], messages[2]], **given) == equal([scores[0], scores[2]])
    texts = ["What is it? ", "Say hello. "]
    ids = [model.processing_class(text=[text + "A cup."], return_tensors="pt") for text in texts]
    with torch.no_grad():
        alone = [model(**each).logits.item() for each in ids]
    assert reward(["A cup."] * 2, prompts=texts) == equal(alone)


def test_the_picture_decides(value_for):
    reward = ModelReward(value_for(FAMILY))
    first, second = reward(["A cup."] * 2, prompts=[user("What is it?")] * 2, image=[cup(), cat()])
    assert abs(first - second) > 1e-4


def test_a_forward_has_at_most_a_batch_and_leaves_no_trace(value_for):
    model, rows = value_for(FAMILY), mixture(FAMILY) * 3
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    scores, sizes = expected(model, rows, ANSWERS * 3), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append((len(kwargs["input_ids"]), torch.is_grad_enabled())),
        with_kwargs=True,
    )
    model.train()
    model.model.eval()  # modes are those of before, module by module
    modes = [module.training for module in model.modules()]
    assert ModelReward(model, batch_size=4)(list(ANSWERS) * 3, **columns(rows)) == equal(scores)
    assert sizes == [(4, False), (4, False), (1, False)]
    assert [module.training for module in model.modules()] == modes
    assert all(weight.grad is None for weight in model.parameters())
    assert ModelReward(model)([], prompts=[], images=[]) == []


def test_an_adapter_of_the_reward_model_counts(value_for):
    model, rows = value_for(FAMILY), mixture(FAMILY)
    before = ModelReward(model)(list(ANSWERS), **columns(rows))
    adapted = get_peft_model(model, model.lora_config(r=4, init_lora_weights=False))
    scores = ModelReward(adapted)(list(ANSWERS), **columns(rows))
    assert scores == equal(expected(adapted, rows))
    assert scores != equal(before)


def test_what_is_no_number_is_none_and_counted(value_for):
    model, logged = copy.deepcopy(value_for(FAMILY)), {}
    reward, rows = ModelReward(model, name="taste"), mixture(FAMILY)
    healthy = reward(list(ANSWERS), **columns(rows), log_metric=logged.__setitem__)
    assert logged == {"taste/failed": 0.0}
    model.score.register_forward_hook(
        lambda module, args, output: output.masked_fill(torch.tensor([[False], [True], [False]]), math.inf)
    )
    scores = reward(list(ANSWERS), **columns(rows), log_metric=logged.__setitem__)
    assert scores == [healthy[0], None, healthy[2]]
    assert logged == {"taste/failed": 1 / 3}
    assert reward.__name__ == "taste"
    assert ModelReward(model).__name__ == "model_reward"


def test_what_it_refuses(value_for, checkpoint):
    model = value_for(FAMILY)
    with pytest.raises(ValueError, match=r"ForConditionalGeneration.*Expected an AutoVLMRewardModel"):
        ModelReward(AutoVLMPolicy.from_pretrained(checkpoint(FAMILY), dtype="float32"))
    with pytest.raises(ValueError, match="batch_size=0"):
        ModelReward(model, batch_size=0)
    reward = ModelReward(model)
    with pytest.raises(ColumnError, match="model_reward reads the column 'prompts'"):
        reward(["A cup."], image=[cup()])
    with pytest.raises(ColumnError, match="each of the 2 completions"):
        reward(["A cup."] * 2, prompts=[user("What is it?")] * 2, image=[cup()])
    texts = AutoVLMPolicy.from_pretrained(checkpoint(FAMILY), dtype="float32").tokenizer
    marked = texts.with_tickets({"prompt": user("What is it?"), "image": cup()})
    with pytest.raises(ImageError, match="placeholder for an image"):
        reward(["A cup."], prompts=[marked["prompt"]])
    with pytest.raises(ImageError, match=r"nowhere\.png"):
        reward(["A cup."], prompts=[user("What is it?")], image=["nowhere.png"])
