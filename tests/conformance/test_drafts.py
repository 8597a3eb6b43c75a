"""Drafts of earlier completions in `generate`: what is sampled is what the stock model samples."""

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import LogitsProcessorList, TextStreamer

from hf_vlm_rl.policy.rollouts.columns import FREE, HIDDEN, Columns
from hf_vlm_rl.policy.rollouts.sampling import Sampler
from tests.images import photo

from .cases import ALL, native, no_image, one_image, tickets, two_images, user
from .test_finished_rows import IMAGES, PICTURES, TEXTS, EndAt, Moods, both, sides

__all__ = ["sides"]

# Why some go on token by token, in a few words.
STAY = {"gemma3": "not all layers", "paligemma": "token_type_ids", "qwen3_5": "not all layers"}
FULL = tuple(family for family in (*ALL, "qwen3_vl_moe") if family not in STAY)
ATOL = 5e-5
MOST = 20
ENDS = {"eos_token_id": list(range(10, 30)), "pad_token_id": 3}

OPTIONS = {
    "temperature": st.sampled_from((0.05, 0.7, 1.3)),
    "top_k": st.sampled_from((0, 5, 50)),
    "top_p": st.sampled_from((0.8, 1.0)),
    "min_p": st.sampled_from((0.05, 0.1)),
    "typical_p": st.just(0.9),
    "top_h": st.just(0.6),
    "epsilon_cutoff": st.just(1e-4),
    "eta_cutoff": st.just(1e-4),
    "renormalize_logits": st.just(True),
    "remove_invalid_values": st.just(True),
    "num_return_sequences": st.just(2),
}


def drafting(sides, family, drafts=8, mode=True):
    """As `sides`, and the policy may draft."""
    pair = sides(family, mode)
    pair[2].base_model.rollouts.speculation = drafts
    return pair


@pytest.mark.parametrize("family", FULL)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(st.sampled_from(IMAGES), st.sampled_from(TEXTS)), min_size=1, max_size=3),
    repeats=st.integers(1, 3),
    mode=st.sampled_from((True, "auto", False)),
    carried=st.sampled_from(("tickets", "tickets", "pixels")),
    drafts=st.sampled_from((1, 3, 8, 40)),
    longest=st.sampled_from((1, 2, MOST, MOST, MOST)),
    ends=st.integers(1, 60),
    do_sample=st.sampled_from((True, True, False)),
    options=st.fixed_dictionaries({}, optional=OPTIONS),
    mask=st.sampled_from((True, True, False)),
    seeds=st.sampled_from(((0, 0, 1), (2, 3, 3))),
)
def test_what_is_sampled_is_what_stock_samples(
    family, sides, rows, repeats, mode, carried, drafts, longest, ends, do_sample, options, mask, seeds
):
    pair = drafting(sides, family, drafts, mode)
    carried = carried if mode else "tickets"  # without sharing, nobody looks at pixels
    conversations = [
        user(text, *(PICTURES[name] for name in images)) for images, text in rows for _ in range(repeats)
    ]
    do_sample = do_sample or "num_return_sequences" in options
    if not do_sample:
        options = {name: value for name, value in options.items() if name.startswith("re")}
    options = options | {"eos_token_id": list(range(10, 10 + ends)), "pad_token_id": 3}
    options |= {"max_new_tokens": longest, "do_sample": do_sample}
    for seed in seeds:
        expected, found = both(pair, conversations, options, mask, seed=seed, carried=carried)
        assert torch.equal(found, expected)
    report = pair[2].sharing_report()
    # Of native pixels in a layout that nobody knows, prompts are not told apart.
    assert set(report["not_speculated"]) <= (
        {"prompts cannot be told apart"} if carried == "pixels" else set()
    )
    assert report["drafts_accepted"] <= report["drafts"]
    assert report["row_steps_run"] <= report["row_steps"]


@pytest.mark.parametrize("family", FULL)
@pytest.mark.parametrize("mode", [True, False])
def test_the_second_time_takes_fewer_forwards(family, mode, sides):
    pair = drafting(sides, family, mode=mode)
    rows = [row for row in (one_image(), two_images()) for _ in range(3)]
    options = {"max_new_tokens": MOST, "do_sample": True, "top_k": 0} | ENDS
    saved = []
    for _ in range(2):
        expected, found = both(pair, rows, options, seed=3)
        assert torch.equal(found, expected)
        saved.append(pair[2].sharing_report()["forwards_saved"])
    report = pair[2].sharing_report()
    assert saved[1] - saved[0] >= 10
    assert report["drafts_accepted"] >= 0.8 * report["drafts"] > 0


@pytest.mark.parametrize("family", FULL)
def test_the_random_numbers_that_follow_are_stocks(family, sides):
    bare, processor, policy = drafting(sides, family)
    rows = [one_image()] * 3
    options = {"max_new_tokens": 9, "do_sample": True} | ENDS
    following = []
    for model, batch in (
        (bare, native(processor, rows)),
        *[(policy, tickets(policy.processing_class, rows))] * 2,
    ):
        torch.manual_seed(5)
        model.generate(**batch, **options, suppress_tokens=list(policy.placeholder_ids))
        following.append(torch.rand(4))
    assert policy.sharing_report()["drafts_accepted"] > 0
    assert torch.equal(following[1], following[0])
    assert torch.equal(following[2], following[0])


@pytest.mark.parametrize("family", FULL)
@pytest.mark.parametrize("mode", [True, False])
def test_every_token_is_sampled_from_stocks_log_probs(family, mode, sides, monkeypatch):
    bare, processor, policy = drafting(sides, family, mode=mode)
    scores = {}
    sample = Sampler.sample

    def watched(self, logits, rows, steps):
        scores.update(
            {key: row.clone() for key, row in zip(zip(rows, steps, strict=True), logits, strict=True)}
        )
        return sample(self, logits, rows, steps)

    monkeypatch.setattr(Sampler, "sample", watched)
    rows = [row for row in (one_image(), two_images()) for _ in range(2)]
    batch, pixels = tickets(policy.processing_class, rows), native(processor, rows)
    for seed in (0, 1, 1):  # of the third, most drafts are right
        scores.clear()
        torch.manual_seed(seed)
        found = policy.generate(**batch, max_new_tokens=MOST, do_sample=True, top_k=0, **ENDS)
    prompt = batch["input_ids"].shape[1]
    whole = pixels | {"input_ids": torch.cat([pixels["input_ids"], found[:, prompt:]], dim=1)}
    whole["attention_mask"] = torch.cat([pixels["attention_mask"], torch.ones_like(found[:, prompt:])], dim=1)
    if "mm_token_type_ids" in whole:
        whole["mm_token_type_ids"] = torch.nn.functional.pad(
            whole["mm_token_type_ids"], (0, found.shape[1] - prompt)
        )
    with torch.no_grad():
        expected = bare(**whole).logits.log_softmax(dim=-1)
    assert policy.sharing_report()["drafts_accepted"] > MOST
    assert len(scores) > MOST
    for (row, step), logits in scores.items():
        torch.testing.assert_close(
            logits.log_softmax(dim=-1), expected[row, prompt + step - 1], atol=ATOL, rtol=0
        )


WORDS = [40, 41, 42, 43]


@pytest.mark.parametrize("drafts", ["wrong", "right", "other"])
def test_the_distribution_is_the_models(drafts, sides, monkeypatch):
    """Chi-square of three tokens' joint frequencies against exact probabilities; p >= 0.001, seeds fixed."""
    # As if forwards cost no more for more tokens: drafts of any chance.
    monkeypatch.setattr("hf_vlm_rl.policy.rollouts.speculation.FORWARD", {"cpu": 10**6})
    _, _, policy = drafting(sides, "internvl")
    size = policy.config.get_text_config().vocab_size
    never = sorted(set(range(size)) - set(WORDS) | set(policy.placeholder_ids))
    rows = [no_image()] * 128
    batch = tickets(policy.processing_class, rows)
    prompt = batch["input_ids"].shape[1]
    joint = list(itertools.product(WORDS, repeat=3))
    behind = torch.tensor([[a, b] for a, b in itertools.product(WORDS, repeat=2)])
    one = {name: value[:1] for name, value in batch.items() if name != "pixel_values"}
    ids = torch.cat([one["input_ids"].expand(16, -1), behind], dim=1)
    with torch.no_grad():
        probs = policy(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, prompt - 1 :, WORDS]
    probs = (probs.double() / 0.5).softmax(dim=-1)
    place = {word: number for number, word in enumerate(WORDS)}
    exact = [
        float(probs[row, 0, place[a]] * probs[row, 1, place[b]] * probs[row, 2, place[c]])
        for a, b, c in joint
        for row in [4 * place[a] + place[b]]
    ]
    options = {"max_new_tokens": 3, "do_sample": True, "top_k": 0, "temperature": 0.5, "eos_token_id": 5}
    counted = dict.fromkeys(joint, 0)
    for seed in range(32):
        torch.manual_seed(seed)
        past = {"wrong": WORDS[:1], "right": [], "other": WORDS[1:]}[drafts]
        if past:  # completions without some words: drafts seldom have these
            policy.generate(**batch, **(options | {"suppress_tokens": sorted({*never, *past})}))
        found = policy.generate(**batch, **(options | {"suppress_tokens": never}))
        for row in found[:, prompt:].tolist():
            counted[tuple(row)] += 1
    report = policy.sharing_report()
    assert report["drafts"] > 1000
    assert report["drafts_accepted"] < report["drafts"]
    total = sum(counted.values())
    assert total == 4096
    assert chisquare(list(counted.values()), [share * total for share in exact]).pvalue >= 0.001


@pytest.mark.parametrize(
    "other",
    [
        user("What is this?", photo("cat", (224, 224))),
        user("What is that?", photo("astronaut", (224, 224))),
        user("What is this?"),
    ],
)
def test_drafts_of_a_prompt_or_image_serve_no_other(other, sides):
    _, _, policy = drafting(sides, "internvl")
    first = user("What is this?", photo("astronaut", (224, 224)))
    accepted = []
    for row in (first, other, other, first):
        # So few tokens that none is followed by what a row itself has said before.
        batch = tickets(policy.processing_class, [row])
        policy.generate(**batch, max_new_tokens=3, do_sample=False, eos_token_id=5)
        accepted.append(policy.sharing_report()["drafts"])
    assert accepted[0] == accepted[1] == 0
    assert accepted[1] < accepted[2] < accepted[3]


def test_padding_is_no_part_of_a_prompt(sides):
    _, _, policy = drafting(sides, "internvl")
    options = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": 5}
    policy.generate(**tickets(policy.processing_class, [one_image()]), **options)
    policy.generate(**tickets(policy.processing_class, [one_image(), two_images()]), **options)
    assert policy.sharing_report()["drafts_accepted"] == 1


def test_wrong_drafts_do_not_fill_the_cache(sides, monkeypatch):
    bare, processor, policy = drafting(sides, "internvl", drafts=8)
    rows, most = [one_image(), two_images()], 160
    never = [5, *policy.placeholder_ids]
    options = {"max_new_tokens": most, "do_sample": False, "eos_token_id": 5, "suppress_tokens": never}
    expected = bare.generate(**native(processor, rows), **options)
    batch = tickets(policy.processing_class, rows)
    # Of one row, all that will come is known; of the other, what will not.
    policy.generate(**tickets(policy.processing_class, rows[:1]), **options)
    policy.generate(
        **tickets(policy.processing_class, rows[1:]), **(options | {"do_sample": True, "temperature": 3.0})
    )
    widths = []
    keep = Columns.keep

    def watched(self, seen, longest):
        keep(self, seen, longest)
        widths.append((self._mask.shape[1] - batch["input_ids"].shape[1], longest))

    monkeypatch.setattr(Columns, "keep", watched)
    assert torch.equal(policy.generate(**batch, **options), expected)
    assert policy.sharing_report()["drafts_accepted"] > most / 2
    sizes = [width for width, _ in widths]
    assert any(after < before for before, after in itertools.pairwise(sizes))  # hidden ones were dropped
    assert all(width <= (longest + 1) * (1 + HIDDEN) + FREE for width, longest in widths)


def test_rows_far_ahead_wait_for_the_slowest(sides, monkeypatch):
    monkeypatch.setattr("hf_vlm_rl.policy.rollouts.sampling.NUMBERS_BYTES", 0)
    monkeypatch.setattr("hf_vlm_rl.policy.rollouts.sampling.LEAST_REACH", 3)
    pair = drafting(sides, "internvl")
    options = {"max_new_tokens": 40, "do_sample": True, "top_k": 0, "eos_token_id": 5, "pad_token_id": 3}
    both(pair, [one_image()], options, seed=1)
    for seed in (1, 1, 2):
        expected, found = both(pair, [one_image(), two_images(), no_image()], options, seed=seed)
        assert torch.equal(found, expected)
    assert pair[2].sharing_report()["drafts_accepted"] > 40


class Ones(LogitsProcessorList):
    """A processor of one's own."""

    def __call__(self, input_ids, scores):
        return scores


# What is asked for, and a word of the reason why it is sampled token by token then.
TOKEN_BY_TOKEN = {
    "scores": ({"return_dict_in_generate": True, "output_scores": True}, "return_dict_in_generate"),
    "no cache": ({"use_cache": False}, "use_cache"),
    "static": ({"cache_implementation": "static", "disable_compile": True}, "StaticCache"),
    "repetition": ({"repetition_penalty": 1.3}, "RepetitionPenaltyLogitsProcessor"),
    "shortest": ({"min_new_tokens": 3}, "LengthLogitsProcessor"),
    "own processor": ({"logits_processor": Moods}, "Moods"),
    "own criterion": ({"stopping_criteria": EndAt}, "EndAt"),
    "time": ({"max_time": 100.0}, "MaxTimeCriteria"),
    "streamer": ({"streamer": TextStreamer}, "streamer"),
    "ranks": ({"synced_gpus": True}, "ranks"),
}


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rank", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wanted", TOKEN_BY_TOKEN)
def test_what_wants_token_by_token_gets_it_and_says_so(wanted, sides, request):
    options, reason = TOKEN_BY_TOKEN[wanted]
    if wanted == "ranks":
        request.getfixturevalue("one_rank")
    bare, processor, policy = drafting(sides, "internvl")
    rows = [one_image()] * (1 if wanted == "streamer" else 3)
    found = []
    for model, batch in ((bare, native(processor, rows)), (policy, tickets(policy.processing_class, rows))):
        fresh = dict(options)
        if "logits_processor" in fresh:
            fresh["logits_processor"] = [Moods()]
        if "stopping_criteria" in fresh:
            fresh["stopping_criteria"] = [EndAt([2, 6, 3])]
        if "streamer" in fresh:
            fresh["streamer"] = TextStreamer(processor.tokenizer)
        torch.manual_seed(0)
        never = list(policy.placeholder_ids)
        sampled = model.generate(
            **batch, max_new_tokens=8, do_sample=True, suppress_tokens=never, **ENDS, **fresh
        )
        found.append(sampled if isinstance(sampled, torch.Tensor) else sampled.sequences)
    assert torch.equal(*found)
    (said,) = policy.sharing_report()["not_speculated"]
    assert reason in said
    assert policy.sharing_report()["drafts"] == 0


@pytest.mark.parametrize("family", STAY)
def test_decoders_that_keep_something_else_go_on_token_by_token(family, sides):
    pair = drafting(sides, family)
    for _ in range(2):
        expected, found = both(pair, [one_image()] * 3, {"max_new_tokens": 8, "do_sample": True} | ENDS)
        assert torch.equal(found, expected)
    (said,) = pair[2].sharing_report()["not_speculated"]
    assert STAY[family] in said
    assert pair[2].sharing_report()["row_steps_run"] > 0


def test_beams_are_left_alone(sides):
    pair = drafting(sides, "internvl")
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": 3} | ENDS
    expected, found = both(pair, [one_image()] * 2, options)
    assert torch.equal(found, expected)
    assert pair[2].sharing_report()["drafts"] == 0


def test_a_hook_on_the_model_sees_each_token(sides):
    _, _, policy = drafting(sides, "internvl")
    policy = copy.deepcopy(policy)
    assert policy.base_model.rollouts.speculation == 8
    seen = []
    layer = policy.base_model.language_model.layers[0]
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
    for _ in range(2):
        policy.generate(
            **tickets(policy.processing_class, [one_image()] * 2), max_new_tokens=5, do_sample=False
        )
    assert set(seen[1:5]) == {1}
    assert "hook" in next(iter(policy.sharing_report()["not_speculated"]))


def test_threads_share_what_is_kept(sides):
    _, _, policy = drafting(sides, "internvl")
    batches = [tickets(policy.processing_class, [one_image()] * size) for size in (1, 2, 3, 4)]

    def run(batch):
        return policy.generate(**batch, max_new_tokens=14, do_sample=False, **ENDS)

    alone = [run(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(run, batches * 3)):
            assert torch.equal(found, alone[number % 4])


def test_scores_of_no_distribution_are_refused():
    sampler = Sampler(LogitsProcessorList(), True, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(RuntimeError, match="row 1 hold inf or nan"):
        sampler.sample(torch.tensor([[0.0, 1.0], [float("nan"), 1.0]]), [0, 1], [1, 1])
