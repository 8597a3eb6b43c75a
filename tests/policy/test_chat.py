"""`policy.chat`: what it takes, and that it answers as `generate` does."""

import pytest
import torch
from transformers import GenerationConfig

from hf_vlm_rl import ImageError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.cases import tickets, user
from tests.images import photo

from ..loading.adapters.models import CAT

CUP = photo("coffee", (160, 64))
SHORT = {"max_new_tokens": 4, "do_sample": False}


def by_generate(policy, conversations: list) -> list[str]:
    batch = tickets(policy.processing_class, conversations)
    output = policy.generate(**batch, **SHORT)
    completions = output[:, batch["input_ids"].shape[1] :]
    answers = policy.processing_class.batch_decode(completions, skip_special_tokens=True)
    return [answer.strip() for answer in answers]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_with_an_image_is_answered_as_by_generate(family, policy_for):
    policy = policy_for(family)
    (expected,) = by_generate(policy, [user("What is it?", CAT)])
    assert policy.chat("What is it?", CAT, **SHORT) == expected
    assert policy.chat("What is it?", [CAT], **SHORT) == expected
    assert policy.chat(user("What is it?", CAT), **SHORT) == expected
    blocks = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    assert policy.chat([{"role": "user", "content": blocks}], [CAT], **SHORT) == expected


def test_a_config_that_asks_for_several_answers_is_refused(policy_for):
    policy = policy_for("internvl")
    config = GenerationConfig(num_return_sequences=2, do_sample=True)
    with pytest.raises(ValueError, match="one answer each"):
        policy.chat(["Hello.", "You?"], generation_config=config)
    policy.generation_config.num_return_sequences = 2
    with pytest.raises(ValueError, match="one answer each"):
        policy.chat(["Hello.", "You?"], **SHORT)


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_several_conversations_are_answered_in_one_batch(family, policy_for):
    policy = policy_for(family)
    conversations = [user("Compare.", CAT, CUP), user("Hello."), user("What is it?", CUP)]
    expected = by_generate(policy, conversations)
    texts = ["Compare.", [{"role": "user", "content": "Hello."}], "What is it?"]
    assert policy.chat(texts, [[CAT, CUP], None, CUP], **SHORT) == expected
    assert policy.chat(["Hello."], **SHORT) == [policy.chat("Hello.", **SHORT)]


def test_a_system_message_and_earlier_turns_count(policy_for):
    policy = policy_for("internvl")
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
    ]
    assert policy.chat(turns, CAT, **SHORT) != policy.chat(turns[3:], CAT, **SHORT)


@pytest.mark.parametrize(("given", "limit"), [({}, 512), ({"max_length": 300}, None)])
def test_an_answer_without_a_given_length_has_a_limit(given, limit, policy_for):
    policy, seen = policy_for("internvl"), {}
    generate = policy.generate

    def spy(**kwargs):
        seen.update(kwargs)
        return generate(**kwargs | SHORT)

    policy.generate = spy
    policy.chat("Hello.", **given)
    assert seen.get("max_new_tokens") == limit


def test_training_goes_on_as_before_with_dropout_off_meanwhile(policy_for):
    policy = policy_for("internvl")
    decoder = policy.get_submodule(policy.family.language).train()
    seen = []
    decoder.register_forward_pre_hook(lambda module, args: seen.append(module.training))
    policy.chat("Hello.", **SHORT)
    assert set(seen) == {False}
    assert decoder.training
    assert not policy.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), ValueError, "Got no conversation"),
        (([[]],), ValueError, "Got no message in conversation 0"),
        ((5,), ValueError, "Got no conversation: 5. Expected a string, a list of messages"),
        (({"role": "user", "content": "?"},), ValueError, "Got no conversation: {'role': 'user'"),
        ((["a", "b"], [CAT]), ValueError, "Got 2 conversations and images with 1 entries"),
        ((["a", "b"], CAT), ValueError, "Got 2 conversations and images with Image"),
        ((user("?", CAT), [CAT]), None, ""),
        (([{"role": "user", "content": [{"type": "image"}]}], [CAT, CAT]), ImageError, "1 empty image block"),
        (("What is it?", 7), ImageError, "an image of type int"),
    ],
)
def test_bad_calls_are_refused(arguments, error, message, policy_for):
    policy = policy_for("internvl")
    if error is None:  # a block with an image and one more image: both are seen
        assert policy.chat(*arguments, **SHORT) == policy.chat(user("?", CAT, CAT), **SHORT)
        return
    with pytest.raises(error, match=message):
        policy.chat(*arguments, **SHORT)


def test_more_than_one_answer_is_refused(policy_for):
    with pytest.raises(ValueError, match="num_return_sequences"):
        policy_for("internvl").chat("Hello.", num_return_sequences=2)
