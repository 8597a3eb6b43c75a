"""`evaluate`: what is generated, what rewards get, and what is left as it was."""

import statistics
import warnings

import pytest
import torch
from datasets import Dataset, DatasetDict, Image, List
from peft import get_peft_model

from hf_vlm_rl.errors import ImageError, RewardError
from hf_vlm_rl.evaluation import evaluate
from tests.evaluation.rows import OPTIONS, mixture, short, starts, user
from tests.images import photo


def completions(result):
    return [row.completions for row in result.rows]


def test_values_are_those_computed_by_hand(greedy):
    texts = [row.completions[0] for row in greedy.rows]
    even = [float(len(text) % 2 == 0) for text in texts]
    letters = [sum(map(str.isalpha, text)) / max(1, len(text)) for text in texts]
    assert greedy.rewards["short"].values == tuple((value,) for value in even)
    assert greedy.rewards["short"].mean.value == pytest.approx(statistics.mean(even))
    given = [*letters[:2], *letters[3:]]
    assert greedy.rewards["starts"].values[2] == (None,)
    assert greedy.rewards["starts"].abstained == 1
    assert (greedy.rewards["starts"].mean.n, greedy.n) == (4, 5)
    assert greedy.rewards["starts"].mean.value == pytest.approx(statistics.mean(given))


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_batches_give_what_chat_and_one_by_one_give(family, policy_for):
    policy = policy_for(family)
    batched = evaluate(policy, mixture(), short, **OPTIONS)
    single = evaluate(policy, mixture(), short, max_new_tokens=5, batch_size=1)
    assert completions(batched) == completions(single)
    assert batched.rewards == single.rewards
    row = mixture()[4]
    assert batched.rows[4].completions[0].strip() == policy.chat(
        row["prompt"], row["images"], max_new_tokens=5, do_sample=False
    )


def test_rows_come_in_the_datasets_order_also_over_several_windows(shared_policy, greedy):
    rows = mixture() * 10  # 16 batches of 1 are encoded at once
    result = evaluate(shared_policy, rows, [short, starts], max_new_tokens=5, batch_size=1)
    assert [row.index for row in result.rows] == list(range(50))
    assert completions(result) == completions(greedy) * 10
    assert result.row_ids == greedy.row_ids * 10
    assert len(set(greedy.row_ids)) == 5


def test_rewards_get_what_grpo_passes(shared_policy):
    calls = []

    def spy(prompts, completions, completion_ids, **columns):
        calls.append((prompts, completions, completion_ids, columns))
        return [0.0] * len(completions)

    rows = [row | {"completion": "left out"} for row in mixture()]
    evaluate(shared_policy, rows, spy, num_generations=2, **OPTIONS)
    ((prompts, said, ids, columns),) = calls
    assert columns.keys() == {"images", "answer"}
    assert columns["answer"] == [answer for answer in "aeiou" for _ in range(2)]
    assert [isinstance(each, str) for each in said] == [row // 2 == 2 for row in range(10)]
    assert prompts[4] == "Once upon a time"
    assert [block["type"] for block in prompts[0][0]["content"]] == ["image", "text"]
    assert all(0 < len(own) <= 5 for own in ids)
    decode = shared_policy.processing_class.batch_decode
    assert said[0][0]["content"] == decode([ids[0]], skip_special_tokens=True)[0]


def test_completions_end_with_the_turn(shared_policy):
    free = evaluate(shared_policy, mixture(), short, **OPTIONS)
    assert free.clipped == 1.0
    token = []

    def first_ids(completion_ids, **_):
        token.append([ids[0] for ids in completion_ids])
        return [float(len(ids)) for ids in completion_ids]

    evaluate(shared_policy, mixture(), first_ids, **OPTIONS)
    stopped = evaluate(shared_policy, mixture(), first_ids, eos_token_id=token[0][0], **OPTIONS)
    assert stopped.rewards["first_ids"].values[0] == (1.0,)
    assert stopped.clipped < 1
    assert stopped.mean_length == pytest.approx(stopped.rewards["first_ids"].mean.value)


def test_completions_that_end_with_a_stop_string_are_whole_and_without_padding(shared_policy):
    processing = shared_policy.processing_class
    free = evaluate(shared_policy, mixture(), short, **OPTIONS)
    # Stops one row at its first token and another at its last; the others do not have it.
    stops = [free.rows[0].completions[0][:3], free.rows[1].completions[0][-3:]]
    lengths = []

    def whole(completion_ids, **_):
        assert not any(ids[-1] == processing.pad_token_id for ids in completion_ids)
        lengths.extend(len(ids) for ids in completion_ids)
        return [1.0] * len(completion_ids)

    found = evaluate(
        shared_policy, mixture(), whole, stop_strings=stops, tokenizer=processing.tokenizer, **OPTIONS
    )
    ended = [any(stop in row.completions[0] for stop in stops) for row in found.rows]
    assert ended[:2] == [True, True]
    assert found.clipped == pytest.approx(1 - statistics.mean(ended))
    assert min(lengths) < max(lengths) == 5


def test_sampling_is_decided_by_the_seed(shared_policy, sampled):
    again = evaluate(shared_policy, mixture(), [short, starts], num_generations=4, **OPTIONS)
    other = evaluate(shared_policy, mixture(), [short, starts], num_generations=4, seed=1, **OPTIONS)
    assert completions(again) == completions(sampled)
    assert completions(other) != completions(sampled)
    assert all(len(own) == 4 for own in completions(sampled))


@pytest.mark.parametrize(
    ("of_checkpoint", "passed", "alike"),
    [
        ({"temperature": 1e-6}, {}, True),
        ({"temperature": 1e-6}, {"temperature": 1.0}, False),
        ({"top_k": 1, "top_p": 0.001, "temperature": 0.01}, {"temperature": 1.2}, True),
        ({"top_k": 1, "top_p": 0.001}, {"top_p": 1.0, "top_k": 0}, False),
        ({}, {}, False),
    ],
)
def test_samples_that_the_checkpoint_makes_alike_are_warned_about(of_checkpoint, passed, alike, policy_for):
    policy = policy_for("internvl")
    for name, value in of_checkpoint.items():
        setattr(policy.generation_config, name, value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = evaluate(policy, mixture(), short, num_generations=4, **OPTIONS, **passed)
    assert any("those of one prompt hardly differ" in str(warning.message) for warning in caught) == alike
    assert all(len(set(each)) == 1 for each in completions(result)) == alike


def test_pass_at_k_follows_from_the_values(sampled, shared_policy):
    scores = sampled.rewards["short"]
    right = [sum(own) for own in scores.values]
    at_two = [1 - (4 - c) * (3 - c) / 12 for c in right]
    assert sorted(scores.pass_at) == [1, 2, 4]
    assert scores.pass_at[1].value == pytest.approx(scores.mean.value)
    assert scores.pass_at[2].value == pytest.approx(statistics.mean(at_two))
    assert scores.pass_at[4].value == statistics.mean(float(c > 0) for c in right)
    assert sampled.rewards["starts"].pass_at == {}
    asked = evaluate(
        shared_policy, mixture(), starts, num_generations=4, thresholds={"starts": 0.5}, **OPTIONS
    )
    passed = [sum(value >= 0.5 for value in own) for own in asked.rewards["starts"].given if own]
    assert asked.rewards["starts"].pass_at[1].value == pytest.approx(statistics.mean(passed) / 4)


def test_a_peft_model_answers_with_its_adapter(policy_for, greedy):
    policy = policy_for("internvl")
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False))
    changed = evaluate(model, mixture(), short, **OPTIONS)
    with model.disable_adapter():
        bare = evaluate(model, mixture(), short, **OPTIONS)
    assert completions(bare) == completions(greedy)
    assert completions(changed) != completions(greedy)


def test_modes_weights_and_random_numbers_stay(policy_for):
    policy = policy_for("internvl").train()
    policy.model.vision_tower.eval()
    modes = [module.training for module in policy.modules()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    evaluate(policy, mixture(), short, num_generations=2, **OPTIONS)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in policy.modules()] == modes


def test_datasets_and_streams_are_as_good_as_lists(shared_policy, greedy):
    rows = [row for row in mixture() if isinstance(row["prompt"], list) and row["images"] is not None]
    expected = [completions(greedy)[row] for row in (0, 1, 4)]
    dataset = Dataset.from_list(rows)
    for form in (dataset, dataset.to_iterable_dataset()):
        assert completions(evaluate(shared_policy, form, short, **OPTIONS)) == expected


def test_one_image_column_may_be_empty(shared_policy, greedy):
    rows = [{"prompt": row["prompt"], "image": (row["images"] or [None])[0]} for row in mixture()[:3]]
    assert completions(evaluate(shared_policy, rows, short, **OPTIONS)) == completions(greedy)[:3]


def test_unusable_rows_are_named_or_counted(shared_policy, greedy):
    rows = mixture()
    rows.insert(1, {"prompt": user("Gone?"), "images": ["/nowhere.jpg"], "answer": "x"})
    rows.insert(3, {"prompt": user([{"type": "image"}]), "images": [], "answer": "x"})
    with pytest.raises(ImageError, match=r"^Row 1, image 0: .*nowhere"):
        evaluate(shared_policy, rows, short, **OPTIONS)
    result = evaluate(shared_policy, rows, [short, starts], on_error="skip", **OPTIONS)
    assert sorted(result.failures) == [1, 3]
    assert "Row 3" in result.failures[3]
    assert [row.index for row in result.rows] == [0, 2, 4, 5, 6]
    assert result.rewards == greedy.rewards
    assert "2 rows failed" in result.table()


def test_an_image_file_that_was_cut_off_is_named_or_counted(shared_policy, tmp_path):
    paths = [str(tmp_path / name) for name in ("cat.png", "half.png", "cup.png")]
    for path in paths:
        photo("cat", (96, 96)).save(path)
    (tmp_path / "half.png").write_bytes((tmp_path / "cat.png").read_bytes()[:-5000])
    columns = {"prompt": [user("What?")] * 3, "image": paths, "answer": ["x"] * 3}
    rows = Dataset.from_dict(columns).cast_column("image", Image())
    with pytest.raises(ImageError, match=r"^Row 1: cannot be decoded: .*half\.png"):
        evaluate(shared_policy, rows, short, **OPTIONS)
    result = evaluate(shared_policy, rows, short, on_error="skip", **OPTIONS)
    assert sorted(result.failures) == [1]
    assert [row.index for row in result.rows] == [0, 2]


def test_so_is_one_of_a_stream(shared_policy, tmp_path):
    paths = [str(tmp_path / name) for name in ("cat.png", "half.png", "cup.png")]
    for path in paths:
        photo("cat", (96, 96)).save(path)
    (tmp_path / "half.png").write_bytes((tmp_path / "cat.png").read_bytes()[:-5000])
    columns = {"prompt": [user("What?")] * 3, "images": [[path] for path in paths], "answer": ["x"] * 3}
    stream = Dataset.from_dict(columns).cast_column("images", List(Image())).to_iterable_dataset()
    with pytest.raises(ImageError, match=r"^Row 1: .*half\.png.*truncated"):
        evaluate(shared_policy, stream, short, **OPTIONS)
    result = evaluate(shared_policy, stream, short, on_error="skip", **OPTIONS)
    assert sorted(result.failures) == [1]
    assert [row.index for row in result.rows] == [0, 2]


def test_a_failing_reward_names_itself_and_its_row(shared_policy):
    def fails(completions, answer, **_):
        return [1 / (of != "i") for of in answer]

    with pytest.raises(RewardError, match=r"'fails' raised ZeroDivisionError.*row 2 \(completion '"):
        evaluate(shared_policy, mixture(), fails, on_error="skip", **OPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 2, "do_sample": False}, "all be the same"),
        ({"num_generations": 0}, "at least 1"),
        ({"num_return_sequences": 2}, "Expected num_generations"),
        ({"thresholds": {"long": 1}}, "names of rewards: ..short"),
        ({"on_error": "ignore"}, "'raise' or 'skip'"),
    ],
)
def test_options_out_of_range_are_refused(shared_policy, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(shared_policy, mixture(), short, **OPTIONS | options)


def test_what_cannot_be_evaluated_is_refused(shared_policy, bare_for):
    splits = DatasetDict(test=Dataset.from_list([{"prompt": "?"}]))
    for rows in (splits, "rows.jsonl", {"prompt": "?"}, None):
        with pytest.raises(ValueError, match=f"Got a {type(rows).__name__} as dataset.*pass one split"):
            evaluate(shared_policy, rows, short)
    with pytest.raises(ValueError, match=r"Row 0: a NoneType\. Expected a dict of TRL's columns"):
        evaluate(shared_policy, [None], short)
    with pytest.raises(ValueError, match="the dataset is empty"):
        evaluate(shared_policy, [], short)
    with pytest.raises(ValueError, match=r"Row 0: no prompt; its columns are \['question'\]"):
        evaluate(shared_policy, [{"question": "?"}], short)
    with pytest.raises(ValueError, match="no reward function"):
        evaluate(shared_policy, mixture(), [])
    with pytest.raises(ValueError, match="Expected an AutoVLMPolicy"):
        evaluate(bare_for("internvl"), mixture(), short)
