"""The whole path on few pictures, two steps: it runs, and leaves what it says. No claim of accuracy."""

import json

import pytest

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.fixture(scope="module")
def sizes(needs_extra):
    from examples.demo_brands.stages import Sizes

    return Sizes(
        labelled=32,
        alignment_epochs=1,
        warm_up=16,
        warm_up_epochs=1,
        selection=2,
        prompts=2,
        held_out=32,
        sft_epochs=1,
    )


@pytest.fixture(scope="module")
def out(cache, sizes, tmp_path_factory):
    """What the command leaves for one seed, and what the controls leave that need no luck."""
    from examples.demo_brands.run import run_seeds

    directory = tmp_path_factory.mktemp("brands")
    run_seeds([3], 2, directory, threads=1, cache=cache, controls=("sft", "random"), sizes=sizes)
    return directory


def test_the_demo_leaves_figures_pictures_and_an_adapter(out):
    figures = json.loads((out / "figures.json").read_text())
    (run,) = figures["runs"]
    assert {name: len(values) for name, values in run["curves"].items()} == {
        "reward": 2,
        "silent": 2,
        "entropy": 2,
    }
    assert run["pictures"] == {"labelled": 32, "warm_up": 16, "graded": 4, "selection": 2, "held_out": 32}
    assert list(run["before_grpo"]["pass_at"]) == ["1", "2", "4", "8"]
    assert 0 <= run["before_grpo"]["solved"] + run["before_grpo"]["hopeless"] <= 1
    stages = ["data", "checkpoint", "alignment", "warm start", "headroom", "grpo", "held out"]
    assert list(run["seconds"]) == stages
    assert [control["control"] for control in figures["controls"]] == ["sft", "random"]
    assert [(control["rows"], control["steps"]) for control in figures["controls"]] == [(4, 1), (4, 2)]
    # The controls are compared with the same warm start on the same pictures.
    assert {control["held_out"]["before"]["value"] for control in figures["controls"]} == {
        run["held_out"]["before"]["value"]
    }
    made = {path.name for path in (out / "seed-3").iterdir()}
    assert {"answers.png", "confusion.png", "held_out.html", "adapter", "figures.json"} <= made
    assert (out / "learning_curve.png").is_file()
    card = (out / "seed-3" / "adapter" / "README.md").read_text()
    assert "aligned on 32 labelled pictures; SFT saw 16 of them" in card


def test_the_warm_start_answers_in_a_chat_as_it_did_when_it_was_measured(out, logos):
    """Two steps may leave an adapter that changes nothing, and such a one is not loaded."""
    from examples.demo_brands.splits import QUESTION, brand_rows
    from hf_vlm_rl import AutoVLMPolicy
    from hf_vlm_rl.evaluation import EvaluationResult

    before = EvaluationResult.load(out / "seed-3" / "before.json")
    images = brand_rows(logos, 32, "held_out", 3)["image"][:3]
    policy = AutoVLMPolicy.from_pretrained(out / "seed-3" / "warm_start", dtype="float32")
    chats = [policy.chat(QUESTION, image, max_new_tokens=8) for image in images]
    assert chats == [row.completions[0].strip() for row in before.rows[:3]]


def test_grpo_with_other_settings_trains_what_they_say(out, logos):
    from examples.demo_brands.controls import CONTROLS
    from examples.demo_brands.splits import brand_rows
    from examples.demo_brands.stages import Sizes
    from hf_vlm_rl import AutoVLMPolicy

    graded = brand_rows(logos, 4, "graded", 3)
    adapted = {}
    for name, steps in (("decoder", 1), ("small_steps", 4)):
        policy = AutoVLMPolicy.from_pretrained(out / "seed-3" / "warm_start", dtype="float32")
        trained = CONTROLS[name](policy, graded, Sizes(prompts=4), 3, out)
        assert (trained.rows, trained.steps) == (4, steps)
        adapted[name] = {key for key, _ in trained.model.named_parameters() if "lora_A" in key}
    assert not any("projector" in key for key in adapted["decoder"])
    assert any("projector" in key for key in adapted["small_steps"])


def test_what_is_done_is_not_done_again(out, cache, sizes, capsys):
    from examples.demo_brands.run import run_seeds

    before = (out / "figures.json").read_text()
    run_seeds([3], 2, out, threads=1, cache=cache, controls=("sft", "random"), sizes=sizes)
    printed = capsys.readouterr().out
    assert printed.count("done before") == 3
    assert "Apache-2.0" in printed
    assert "accuracy on 32 held-out pictures" in printed
    assert (out / "figures.json").read_text() == before
    with pytest.raises(ValueError, match=r"'steps': 2\}. Expected .*'steps': 9\}: take another --out"):
        run_seeds([3], 9, out, threads=1, cache=cache, sizes=sizes)


def test_pairs_are_made_of_a_right_and_a_wrong_answer_to_one_picture(out, logos):
    from examples.demo_brands.controls import prefer, preferences
    from examples.demo_brands.splits import brand_rows
    from hf_vlm_rl import AutoVLMPolicy
    from hf_vlm_rl.evaluation import EvaluatedRow, EvaluationResult

    given = [("Nike", "Audi"), ("Nike", "Nike"), ("BMW", "none"), ("BMW", " Shell")]
    rewards = [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)]
    rows = tuple(
        EvaluatedRow(index, "", texts, {"choice_reward": values})
        for index, (texts, values) in enumerate(zip(given, rewards, strict=True))
    )
    graded = brand_rows(logos, 4, "graded", 0)
    pairs = preferences(EvaluationResult({}, (), rows, {}, 0.0, 1.0, {}), graded, seed=0)
    texts = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in pairs]
    assert texts == [("Nike", "Audi"), ("Shell", "BMW")]
    images = [graded[index]["image"].tobytes() for index in (0, 3)]
    assert [image.tobytes() for image in pairs["image"]] == images

    policy = AutoVLMPolicy.from_pretrained(out / "seed-3" / "warm_start", dtype="float32")
    trainer = prefer(policy, pairs, epochs=1, seed=0, directory=out)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses == pytest.approx([0.693], abs=0.002)  # of the first step: policy and reference are the same
    with pytest.raises(ValueError, match="Got 2 pictures, each with answers that are all right or all wrong"):
        preferences(EvaluationResult({}, (), rows[1:3], {}, 0.0, 1.0, {}), graded, seed=0)
