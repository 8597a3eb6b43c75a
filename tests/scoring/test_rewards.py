"""Reward functions in PPO: what they are given, what becomes of their numbers, and their errors."""

import copy

import pytest
import torch
from trl.experimental.utils import get_reward

from hf_vlm_rl import RewardError, RewardFunctionModel
from tests.conformance.cases import mixture
from tests.scoring.runs import TWO, log, ppo, rows_of

pytestmark = pytest.mark.ppo


def sample(policy, family, answers=("a", "b", "c", "d")):
    """Prompts with an answer each, and a completion each, of different lengths."""
    processing = policy.processing_class
    rows = [
        processing.encode_prompt(prompt, answer=answer)
        for prompt, answer in zip((mixture(family) * 2)[:4], answers, strict=True)
    ]
    texts = ["A cat.", "No", "Two dogs and a cup.", "It is red."]
    completions = [processing.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    queries = processing.pad(rows, return_tensors="pt")
    width = max(map(len, completions))
    padded = [ids + [processing.pad_token_id] * (width - len(ids)) for ids in completions]
    query = queries["input_ids"]
    return torch.cat([query, torch.tensor(padded)], 1), query.shape[1], texts, completions


def score(model, sampled, processing):
    return get_reward(model, sampled[0], processing.pad_token_id, sampled[1])[1]


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "paligemma", "llava_onevision"])
def test_a_function_gets_prompts_completions_ids_and_the_rows_own_columns(family, policy_for):
    policy, seen = policy_for(family), {}
    processing = policy.processing_class

    def reward(prompts, completions, completion_ids, answer, **rest):
        seen.update(prompts=prompts, completions=completions, ids=completion_ids, answer=answer, rest=rest)
        return [1.0, 2.0, 3.0, 4.0]

    sampled = sample(policy, family)
    scores = score(RewardFunctionModel(reward, processing), sampled, processing)
    assert scores.tolist() == [1.0, 2.0, 3.0, 4.0]
    _, _, texts, completions = sampled
    assert [row[0]["content"] for row in seen["completions"]] == texts
    assert seen["ids"] == completions
    assert seen["answer"] == ["a", "b", "c", "d"]
    assert seen["rest"] == {}
    for prompt, expected in zip(seen["prompts"], (mixture(family) * 2)[:4], strict=True):
        blocks = [{"type": "image"} if "image" in block else block for block in expected[0]["content"]]
        assert prompt == [{"role": "user", "content": blocks}]


def test_weights_and_abstentions(policy_for):
    policy = policy_for("internvl")
    processing = policy.processing_class

    def one(completions, **columns):
        return [1.0, None, 3, True]

    def two(completions, **columns):
        return torch.tensor([10.0, 20.0, 30.0, 40.0])

    model = RewardFunctionModel([one, two], processing, weights=[2.0, 0.5])
    sampled = sample(policy, "internvl")
    assert score(model, sampled, processing).tolist() == [7.0, 10.0, 21.0, 22.0]
    mask = sampled[0] != processing.pad_token_id
    assert model(input_ids=sampled[0], attention_mask=mask).tolist() == [7.0, 10.0, 21.0, 22.0]


def fails_on_b(completions, answer, **columns):
    if "b" in answer:
        raise KeyError("no such box")
    return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (fails_on_b, r"'fails_on_b' raised KeyError.*no such box.*row 1 .*'No'.*'answer': 'b'"),
        (lambda completions, **_: [1.0], r"returned \[1.0\] for 4 completions"),
        (lambda completions, **_: None, r"returned .*None.* for 4 completions"),
        (lambda completions, **_: [0.0, float("nan"), 0, 0], "returned nan for row 1"),
        (lambda completions, **_: [0.0, 0.0, "1", 0], "returned '1' for row 2"),
        (lambda completions, **_: [0.0, None, 0, 0], "Row 1 .*every reward function returned None"),
        (lambda completions: [0.0] * 4, "unexpected keyword argument"),
    ],
)
def test_what_is_no_reward_is_refused_with_its_row(reward, told, policy_for):
    processing = policy_for("internvl").processing_class
    model = RewardFunctionModel(reward, processing)
    with pytest.raises(RewardError, match=told):
        score(model, sample(policy_for("internvl"), "internvl"), processing)


def test_arguments_are_checked(policy_for):
    processing = policy_for("internvl").processing_class

    async def slow(**_):
        return []

    with pytest.raises(ValueError, match="2 reward functions and 1 weights"):
        RewardFunctionModel([fails_on_b, fails_on_b], processing, weights=[1.0])
    with pytest.raises(ValueError, match="0 reward functions"):
        RewardFunctionModel([], processing)
    with pytest.raises(TypeError, match="plain function"):
        RewardFunctionModel([slow], processing)
    same = RewardFunctionModel([fails_on_b, fails_on_b], processing)
    assert same.callback.names == ["fails_on_b", "fails_on_b_2"]
    row = processing.encode_prompt(mixture("internvl")[0], prompts="mine")
    ids = torch.tensor([row["input_ids"]])
    with pytest.raises(RewardError, match="columns \\['prompts'\\]"):
        same(input_ids=ids, attention_mask=ids != -1)


def test_one_text_prompt_cannot_have_two_answers(policy_for):
    processing = policy_for("internvl").processing_class
    words = [{"role": "user", "content": "A prompt of this test alone."}]
    first, same, other = (processing.encode_prompt(words, answer=answer) for answer in "aab")
    assert first == same
    processing.pad([first, same])
    with pytest.raises(LookupError, match=r"columns {'answer': 'a'} before, and now with {'answer': 'b'}"):
        processing.pad([other])


@pytest.mark.parametrize("family", TWO)
def test_means_of_a_run_are_in_the_trainers_log(family, policy_for, value_for, tmp_path):
    policy = policy_for(family)
    given = []

    def by_answer(answer, **columns):
        given.append(answer)
        return [float(value) for value in answer]

    def rarely(answer, **columns):
        return [5.0 if value == "0" else None for value in answer]

    rows = rows_of(policy, family, answer=["0", "1", "2", "3"])
    model = RewardFunctionModel([by_answer, rarely], policy.processing_class)
    options = {"eval_rows": rows.select([3]), "num_sample_generations": 2, "per_device_eval_batch_size": 1}
    trainer = ppo(
        policy, rows, value_for(family), tmp_path, reward=model, callbacks=[model.callback], **options
    )
    trainer.train()
    assert sorted(given[0]) == ["0", "1", "2", "3"]
    assert given[1] == ["3"]  # an evaluation sample; it does not count below
    assert log(trainer, "rewards/by_answer/mean") == [1.5, 1.5]
    assert log(trainer, "rewards/rarely/mean") == [5.0, 5.0]
    assert log(trainer, "objective/scores") == pytest.approx([(6 + 5) / 4] * 2)


def test_reporters_that_come_first_get_the_means_too(policy_for, value_for, tmp_path):
    from transformers import TrainerCallback

    class Reporter(TrainerCallback):
        seen = None

        def on_log(self, args, state, control, logs=None, **kwargs):
            self.seen = dict(logs)

    policy, reporter = policy_for("internvl"), Reporter()
    model = RewardFunctionModel(lambda completions, **_: [1.0] * len(completions), policy.processing_class)
    trainer = ppo(
        policy,
        rows_of(policy, "internvl"),
        value_for("internvl"),
        tmp_path,
        reward=model,
        callbacks=[reporter],
    )
    model.log_to(trainer)
    model.log_to(trainer)
    assert trainer.callback_handler.callbacks.count(model.callback) == 1
    trainer.train()
    assert reporter.seen["rewards/<lambda>/mean"] == 1.0


@pytest.mark.parametrize("family", TWO)
def test_the_penalty_for_no_eos_is_on_rows_without_one(family, policy_for, value_for, tmp_path):
    policy = policy_for(family)
    eos = policy.processing_class.eos_token_id
    with torch.no_grad():  # so that some completions end
        head = policy.get_output_embeddings()
        head.weight[eos] *= 3
    seen = []

    def nothing(completion_ids, **columns):
        seen.extend(completion_ids)
        return [0.0] * len(completion_ids)

    options = {"stop_token": "eos", "missing_eos_penalty": 1.0, "response_length": 12, "total_episodes": 4}
    trainer = ppo(policy, rows_of(policy, family), value_for(family), tmp_path, reward=nothing, **options)
    trainer.train()
    endless = [eos not in ids for ids in seen]
    assert log(trainer, "objective/scores") == [-sum(endless) / 4]
    assert all(eos not in ids[:-1] for ids in seen)


def test_a_copy_shares_the_log(policy_for):
    model = RewardFunctionModel(fails_on_b, policy_for("internvl").processing_class)
    assert copy.deepcopy(model).callback is model.callback
