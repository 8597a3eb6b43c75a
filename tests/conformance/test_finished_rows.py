"""Finished rows leave the batch of `generate`, and what it gives is what the stock model gives."""

import copy
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import get_peft_model
from transformers import AutoProcessor, LogitsProcessor, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from hf_vlm_rl.compat import CACHE
from tests.images import photo

from .cases import ALL, native, no_image, one_image, tickets, two_images, user

# Besides the twelve: a hybrid, a convolutional one, sliding windows with shared keys, and experts.
OTHERS = ("qwen3_5", "lfm2_vl", "gemma4", "qwen3_vl_moe")
ATOL = 5e-5
MOST = 12
TEXTS = ("What is this? Look closely.", "Compare them, please, and tell me all you see.", "Say hello.")
PICTURES = {"cat": photo("cat", (140, 140)), "cup": photo("coffee", (224, 84))}
IMAGES = (("cat",), ("cup", "cat"), ("cup",))


class EndAt(StoppingCriteria):
    """Ends each row after a number of tokens."""

    def __init__(self, lengths):
        self.lengths, self.seen = torch.tensor(lengths), []

    def __call__(self, input_ids, scores, **kwargs):
        self.seen.append(input_ids.clone())
        return self.lengths[: len(input_ids)] <= len(self.seen)


class AllTogether(StoppingCriteria):
    """Looks at all rows: ends them once there are enough even tokens among all that was generated."""

    def __init__(self, prompt):
        self.prompt = prompt

    def __call__(self, input_ids, scores, **kwargs):
        even = (input_ids[:, self.prompt :] % 2 == 0).sum()
        return (even > 3 * len(input_ids)).expand(len(input_ids))


class Moods(LogitsProcessor):
    """Keeps a state for each row, and looks at its neighbour's scores."""

    def __init__(self):
        self.mood = None

    def __call__(self, input_ids, scores):
        self.mood = scores if self.mood is None else 0.5 * (self.mood + scores.roll(1, 0))
        return self.mood


@pytest.fixture(scope="session")
def sides(_loaded_policy, _loaded_bare, checkpoint):
    """`sides(family)`: stock model and processor, and a policy; counts are new."""

    @functools.cache
    def make(family):
        processor = AutoProcessor.from_pretrained(checkpoint(family), padding_side="left")
        return _loaded_bare(family).eval(), processor, copy.deepcopy(_loaded_policy(family)).eval()

    def renewed(family, mode=True):
        bare, processor, policy = make(family)
        policy.base_model.renew()
        policy.base_model.sharing.mode = mode
        return bare, processor, policy

    return renewed


def ends_of(model):
    """Ids of the end of a sequence; suppressed, they leave the end to a criterion."""
    ids = model.generation_config.eos_token_id
    return list(ids) if isinstance(ids, list) else [ids]


def both(sides, rows, options, mask=True, criteria=None, seed=0, carried="tickets"):
    """What stock and the policy generate, each with its own random numbers from one seed."""
    bare, processor, policy = sides
    pixels = native(processor, rows)
    batch = tickets(policy.processing_class, rows) if carried == "tickets" else native(processor, rows)
    never = [*policy.placeholder_ids, *options.get("suppress_tokens", [])]
    outputs = []
    for model, inputs in ((bare, pixels), (policy, batch)):
        if not mask:
            inputs.pop("attention_mask")
        torch.manual_seed(seed)
        more = {"suppress_tokens": never} if never else {}
        stop = criteria(inputs["input_ids"].shape[1]) if criteria else None
        outputs.append(model.generate(**inputs, **(options | more), stopping_criteria=stop))
    return outputs


lengths = st.lists(st.integers(1, MOST), min_size=9, max_size=9)
OPTIONS = {
    "temperature": st.sampled_from((0.7, 1.0, 1.3)),
    "top_k": st.sampled_from((0, 5, 50)),
    "top_p": st.sampled_from((0.8, 1.0)),
    "min_p": st.sampled_from((0.05, 0.1)),
    "typical_p": st.just(0.9),
    "top_h": st.just(0.6),
    "repetition_penalty": st.just(1.3),
    "no_repeat_ngram_size": st.just(2),
    "bad_words_ids": st.just([[7], [8, 9]]),
    "min_new_tokens": st.integers(1, 5),
    "exponential_decay_length_penalty": st.just((2, 1.5)),
    "renormalize_logits": st.just(True),
    "forced_eos_token_id": st.just(6),
    "num_return_sequences": st.just(2),
    "synced_gpus": st.just(False),
}


@pytest.mark.parametrize("family", [*ALL, *OTHERS])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(st.sampled_from(IMAGES), st.sampled_from(TEXTS)), min_size=1, max_size=3),
    repeats=st.integers(1, 3),
    mode=st.sampled_from((True, "auto")),
    carried=st.sampled_from(("tickets", "tickets", "pixels")),
    lengths=st.none() | lengths,
    ends=st.integers(1, 120),
    do_sample=st.sampled_from((True, True, False)),
    options=st.fixed_dictionaries({}, optional=OPTIONS),
    mask=st.sampled_from((True, True, False)),
    seed=st.integers(0, 99),
)
def test_what_is_generated_is_what_stock_generates(
    family, sides, rows, repeats, mode, carried, lengths, ends, do_sample, options, mask, seed
):
    pair = sides(family, mode)
    conversations = [
        user(text, *(PICTURES[name] for name in images)) for images, text in rows for _ in range(repeats)
    ]
    copies = options.get("num_return_sequences", 1)
    if copies > 1:
        do_sample = True
    if not do_sample:
        sampling = ("temperature", "top_k", "top_p", "min_p", "typical_p", "top_h")
        options = {name: value for name, value in options.items() if name not in sampling}
    # With so many ends of sequence, rows end by themselves at random.
    options = {"eos_token_id": list(range(10, 10 + ends)), "max_new_tokens": MOST} | options
    options |= {"do_sample": do_sample, "pad_token_id": 3}
    criteria = None if lengths is None else lambda prompt: [EndAt(lengths * copies)]
    expected, found = both(pair, conversations, options, mask, criteria, seed, carried)
    assert torch.equal(found, expected)
    report = pair[2].sharing_report()
    assert report["rows_kept"] == {}
    if len(found) > 1:
        assert 0 < report["row_steps_run"] <= report["row_steps"]


@pytest.mark.parametrize("family", [*ALL, *OTHERS])
def test_rows_that_are_finished_are_not_computed(family, sides):
    pair = sides(family)
    rows = [row for row in (one_image(), two_images()) for _ in range(3)]
    lengths = [1, 12, 2, 3, 5, 2]
    options = {"max_new_tokens": 12, "do_sample": True, "suppress_tokens": ends_of(pair[0])}
    expected, found = both(pair, rows, options, criteria=lambda prompt: [EndAt(lengths)])
    assert torch.equal(found, expected)
    report = pair[2].sharing_report()
    # Every step's rows: those that are still short of their lengths.
    assert report["row_steps_run"] == sum(lengths)
    assert report["row_steps"] == 12 * 6


# What is asked for, and a word of the reason why rows then wait for each other.
STAY = {
    "scores": ({"return_dict_in_generate": True, "output_scores": True}, "return_dict_in_generate"),
    "logits": ({"return_dict_in_generate": True, "output_logits": True}, "return_dict_in_generate"),
    "cache": ({"return_dict_in_generate": True}, "return_dict_in_generate"),
    "no cache": ({"use_cache": False}, "use_cache"),
    "static": ({"cache_implementation": "static", "disable_compile": True}, "StaticCache"),
    "no end": ({"eos_token_id": None, "stop_strings": ["a", "e"]}, "end-of-sequence"),
    "state": ({"logits_processor": [Moods]}, "Moods"),
    "watermark": ({"watermarking_config": "watermark"}, "WatermarkLogitsProcessor"),
}


@pytest.mark.parametrize("wanted", STAY)
def test_what_shows_finished_rows_goes_the_stock_way_and_says_so(wanted, sides):
    options, reason = STAY[wanted]
    bare, processor, policy = sides("internvl")
    rows = [one_image()] * 4
    outputs = []
    for model, inputs in (
        (bare, native(processor, rows)),
        (policy, tickets(policy.processing_class, rows)),
    ):
        fresh = dict(options)
        if "logits_processor" in fresh:
            fresh["logits_processor"] = [Moods()]
        if "watermarking_config" in fresh:
            from transformers import WatermarkingConfig

            fresh["watermarking_config"] = WatermarkingConfig()
        if "stop_strings" in fresh:
            fresh["tokenizer"] = processor.tokenizer
            # What the call leaves open comes from the model's own settings.
            model = copy.deepcopy(model)
            model.generation_config.eos_token_id = None
        torch.manual_seed(0)
        options_of = {
            "max_new_tokens": 8,
            "do_sample": True,
            "suppress_tokens": list(policy.placeholder_ids),
        }
        if "eos_token_id" not in fresh:
            fresh["eos_token_id"] = list(range(10, 100))
        outputs.append((model, model.generate(**inputs, **(options_of | fresh))))
    (_, expected), (policy, found) = outputs
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    else:
        assert torch.equal(found.sequences, expected.sequences)
        assert found[CACHE].get_seq_length() == expected[CACHE].get_seq_length()
        for name in ("scores", "logits"):
            for mine, theirs in zip(found.get(name, ()), expected.get(name, ()), strict=True):
                torch.testing.assert_close(mine, theirs, atol=ATOL, rtol=0)
    (said,) = policy.sharing_report()["rows_kept"]
    assert reason in said
    assert policy.sharing_report()["row_steps"] == 0


def test_a_cache_that_the_caller_keeps_has_all_its_rows(sides):
    _, _, policy = sides("internvl", mode=False)
    batch = tickets(policy.processing_class, [no_image()] * 3)
    with torch.no_grad():
        kept = policy(**batch, use_cache=True)[CACHE]
    policy.base_model.sharing.mode = True
    ids = torch.cat([batch["input_ids"], torch.full((3, 1), 9)], dim=1)
    found = policy.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        **{CACHE: kept},
        max_new_tokens=6,
        stopping_criteria=[EndAt([1, 6, 2])],
    )
    assert len(kept.layers[0].keys) == 3
    assert found.shape == (3, ids.shape[1] + 6)
    assert policy.sharing_report()["rows_kept"] == {f"{CACHE} is given": 1}


def test_criteria_that_look_at_all_rows_see_all_rows(sides):
    pair = sides("internvl")
    rows = [one_image()] * 5
    seen = []

    def criteria(prompt):
        seen.append(EndAt([1, 9, 3, 2, 4]))
        return [seen[-1], AllTogether(prompt)]

    options = {"max_new_tokens": 9, "do_sample": True, "suppress_tokens": ends_of(pair[0])}
    expected, found = both(pair, rows, options, criteria=criteria)
    assert torch.equal(found, expected)
    for theirs, mine in zip(seen[0].seen, seen[1].seen, strict=True):
        assert torch.equal(mine, theirs)
    assert pair[2].sharing_report()["row_steps_run"] < pair[2].sharing_report()["row_steps"]


def test_a_streamer_gets_every_row(sides):
    class Kept(BaseStreamer):
        def __init__(self):
            self.got = []

        def put(self, value):
            self.got.append(value.tolist())

        def end(self):
            self.got.append("end")

    bare, processor, policy = sides("internvl")
    rows = [one_image()] * 4
    got = []
    for model, inputs in ((bare, native(processor, rows)), (policy, tickets(policy.processing_class, rows))):
        got.append(Kept())
        torch.manual_seed(0)
        model.generate(
            **inputs,
            max_new_tokens=8,
            do_sample=True,
            suppress_tokens=list(policy.placeholder_ids),
            stopping_criteria=[EndAt([1, 8, 3, 2])],
            streamer=got[-1],
        )
    # Images inside the prompt come as clean placeholders in both.
    assert got[1].got == got[0].got


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"prompt_lookup_num_tokens": 2, "rows": 1}])
def test_other_ways_to_generate_are_left_alone(options, sides):
    pair = sides("internvl")
    options = dict(options)
    rows = [one_image()] * options.pop("rows", 3)
    eos = {"eos_token_id": list(range(10, 60)), "pad_token_id": 3}
    expected, found = both(pair, rows, {"max_new_tokens": 8, "do_sample": False} | eos | options)
    assert torch.equal(found, expected)
    assert pair[2].sharing_report()["row_steps"] == 0


def test_a_hook_on_the_model_sees_every_row(sides):
    _, _, policy = sides("internvl")
    policy = copy.deepcopy(policy)
    rows = []
    layer = policy.base_model.language_model.layers[0]
    layer.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    batch = tickets(policy.processing_class, [one_image()] * 3)
    policy.generate(**batch, max_new_tokens=5, stopping_criteria=[EndAt([1, 5, 2])])
    assert set(rows) == {3}
    assert "hook" in next(iter(policy.sharing_report()["rows_kept"]))


def test_it_can_be_switched_off(sides):
    pair = sides("internvl", mode=False)
    options = {"max_new_tokens": 6, "suppress_tokens": ends_of(pair[0])}
    expected, found = both(pair, [one_image()] * 3, options, criteria=lambda prompt: [EndAt([1, 6, 2])])
    assert torch.equal(found, expected)
    assert pair[2].sharing_report()["row_steps"] == 0


def test_threads_do_not_take_each_others_rows(sides):
    _, _, policy = sides("internvl")
    batches = [tickets(policy.processing_class, [one_image()] * size) for size in (2, 3, 4, 5)]

    def run(batch):
        ends = [EndAt([1, 14, 5, 3, 2])]
        return policy.generate(**batch, max_new_tokens=14, do_sample=False, stopping_criteria=ends)

    alone = [run(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, batches * 3))
    for number, found in enumerate(together):
        assert torch.equal(found, alone[number % 4])


def test_a_generate_inside_a_criterion_has_rows_of_its_own(sides):
    _, _, policy = sides("internvl")
    batch = tickets(policy.processing_class, [one_image()] * 3)

    class Asks(EndAt):
        def __call__(self, input_ids, scores, **kwargs):
            inner = tickets(policy.processing_class, [two_images()] * 2)
            self.answer = policy.generate(**inner, max_new_tokens=4, stopping_criteria=[EndAt([1, 4])])
            return super().__call__(input_ids, scores, **kwargs)

    plain = policy.generate(**batch, max_new_tokens=6, stopping_criteria=[EndAt([1, 6, 2])])
    asking = Asks([1, 6, 2])
    found = policy.generate(**batch, max_new_tokens=6, stopping_criteria=[asking])
    assert torch.equal(found, plain)


def test_with_dropout_each_row_has_its_own_noise(sides):
    """In training mode: rows that leave change the order of the noise, and nothing else."""
    _, _, policy = sides("internvl")
    policy = copy.deepcopy(policy)
    torch.manual_seed(0)
    config = policy.lora_config(r=4, lora_dropout=0.3, init_lora_weights=False)
    model = get_peft_model(policy, config).train()
    batch = tickets(policy.processing_class, [one_image()] * 3)
    ends = [1, 200, 200]
    sampled = model.generate(
        **batch,
        max_new_tokens=200,
        do_sample=False,
        stopping_criteria=[EndAt(ends)],
        suppress_tokens=ends_of(policy),
    )
    answers = sampled[:, batch["input_ids"].shape[1] :]
    assert not torch.equal(answers[1], answers[2])
    assert policy.sharing_report()["row_steps_run"] == sum(ends)
