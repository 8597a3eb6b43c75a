"""Where a judge finds the images, the question and the right answer of a row."""

import io

import numpy as np
import pytest

from hf_vlm_rl import ColumnError, RewardFunctionModel
from hf_vlm_rl.evaluation import evaluate
from tests.images import photo

CAT, CUP = photo("cat", (16, 12)), photo("coffee", (12, 16))
ASKED = [{"role": "user", "content": "What is it?"}]


def seen(judging):
    return [np.asarray(image).tobytes() for image in judging.server.images]


def png(image):
    content = io.BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    "columns",
    [
        {"image": [CAT]},
        {"images": [[CAT]]},
        {"images": [None], "image": [CAT]},
        {"images": [[CAT]], "image": [CUP]},  # as TRL reads them
        {"image": [{"bytes": png(CAT), "path": None}]},
        {"image": [np.asarray(CAT)]},
        {
            "prompts": [
                [
                    {
                        "role": "user",
                        "content": [{"type": "image", "image": CAT}, {"type": "text", "text": "?"}],
                    }
                ]
            ]
        },
    ],
)
def test_an_image_is_found_in_columns_and_blocks(columns, judging):
    assert judging.score()(["A cat."], **{"prompts": [ASKED], **columns}) == [0.5]
    assert seen(judging) == [CAT.tobytes()]


def test_a_file_is_read(judging, tmp_path):
    CAT.save(tmp_path / "cat.png")
    judging.score()(["A cat."], prompts=["What?"], image=[str(tmp_path / "cat.png")])
    assert seen(judging) == [CAT.tobytes()]


def test_several_images_come_in_order_and_rows_may_have_none(judging):
    judge = judging.score(concurrency=1)
    assert judge(["a", "b"], prompts=[ASKED] * 2, images=[[CUP, CAT], None]) == [0.5, 0.5]
    assert seen(judging) == [CUP.tobytes(), CAT.tobytes()]
    assert [len(body["messages"][1]["content"]) for body in judging.server.asked] == [3, 1]


def test_a_row_without_a_prompt_is_for_other_rewards(judging):
    assert judging.score()(["a", "b"], prompts=[None, ASKED], image=[CAT, CAT]) == [None, 0.5]
    assert len(judging.server.asked) == 1


def test_the_judge_is_shown_the_conversation_the_answer_and_the_reference(judging):
    shown = []
    judging.server.verdict = lambda document, images: shown.append(document) or {"reason": "", "score": 0}
    judge = judging.score(reference="answer", tag="answer")
    prompt = [
        {"role": "system", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "What?"}]},
    ]
    completions = [[{"role": "assistant", "content": "<think>x</think><answer> a cat </answer>"}]] * 2
    assert judge(completions, prompts=[prompt] * 2, image=[CAT] * 2, answer=["cat", None]) == [0.0, None]
    conversation = [{"role": "system", "content": ""}, {"role": "user", "content": "What?"}]
    assert shown == [{"conversation": conversation, "answer": "a cat", "reference": ["cat"]}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompts": [ASKED]}, "finds no image.*tokenizer=policy.tokenizer"),
        ({"image": [CAT]}, "'prompts', which is missing"),
        (
            {"prompts": [7], "image": [CAT]},
            "row 0 of the column 'prompts' is 7. Expected a string or messages",
        ),
        ({"prompts": [[]], "image": [CAT]}, "Expected a string or messages"),
        ({"prompts": [ASKED], "image": [7]}, r"row 0 of the columns \['image'\].*image of type int"),
        ({"prompts": [ASKED], "images": [["no.png"]]}, "row 0 of the columns.*no.png"),
        ({"prompts": [ASKED], "image": [CAT, CAT]}, "one value for each of the 1 completions"),
        ({"prompts": ["<|image_pad|>[ticket 0123456789abcdef]"]}, "finds no image"),
    ],
)
def test_what_is_missing_or_wrong_is_named(columns, message, judging):
    with pytest.raises(ColumnError, match=message):
        judging.score()(["A cat."], **columns)
    assert judging.server.asked == []


@pytest.mark.parametrize("odd", [None, 7, [], {}, "\ud800", "a" * 200_000, [{"role": "assistant"}]])
def test_no_completion_raises(odd, judging):
    assert judging.score()([odd], prompts=[ASKED], image=[CAT]) == [0.5]


def test_no_rows_are_no_requests(judging):
    assert judging.score()([], prompts=[], image=[]) == []


@pytest.mark.parametrize(
    "prompt", ["Look: {}{} What?", [{"role": "user", "content": "Look: {}{} What?"}]], ids=type
)
def test_images_come_from_their_tickets(prompt, judging, policy_for):
    tokenizer = policy_for("qwen2_5_vl").tokenizer
    marks = [tokenizer.mark(image) for image in (CAT, CUP)]
    filled = (
        prompt.format(*marks)
        if isinstance(prompt, str)
        else [prompt[0] | {"content": prompt[0]["content"].format(*marks)}]
    )
    assert judging.score(tokenizer=tokenizer)(["A cat."], prompts=[filled]) == [0.5]
    assert seen(judging) == [CAT.tobytes(), CUP.tobytes()]
    text = judging.server.asked[0]["messages"][1]["content"][-1]["text"]
    assert "Look:  What?" in text
    assert "ticket" not in text


def test_an_evaluation_passes_images_and_repeats_prompts(judging, policy_for):
    judging.server.verdict = lambda document, images: {"reason": "", "score": 10}
    rows = [{"prompt": ASKED, "images": [image]} for image in (CAT, CUP)]
    result = evaluate(policy_for("qwen2_5_vl"), rows, judging.score(), max_new_tokens=4)
    assert result.rewards["score_judge"].mean.value == 1
    assert set(seen(judging)) == {CAT.tobytes(), CUP.tobytes()}


def test_ppo_passes_the_columns_of_encode_prompt(judging, policy_for, tmp_path):
    CAT.save(tmp_path / "cat.png")
    processing = policy_for("qwen2_5_vl").processing_class
    row = processing.encode_prompt(ASKED, [CAT], image=str(tmp_path / "cat.png"))
    ids = processing.pad([row], return_tensors="pt")["input_ids"]
    scores = RewardFunctionModel(judging.score(), processing)(
        input_ids=ids, attention_mask=ids != processing.pad_token_id
    )
    assert scores.tolist() == [0.5]
    assert seen(judging) == [CAT.tobytes()]
