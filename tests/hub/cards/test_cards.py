"""What a card says, and that the Hub takes it."""

import dataclasses

import pytest
from huggingface_hub import ModelCard, metadata_load

from hf_vlm_rl.hub.cards import AdapterCardData, Evaluation
from hf_vlm_rl.hub.cards.facts import Curve
from hf_vlm_rl.hub.cards.methods import METHODS, method_of
from hf_vlm_rl.hub.cards.render import draw, render
from hf_vlm_rl.hub.cards.run_facts import learning_curve
from hf_vlm_rl.hub.cards.stored import FILE, store, stored
from model_cards.make import EXAMPLES, FOLDER, dpo, grpo, pages, ppo
from tests.hub.card_rules import problems


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_the_template_gives(name):
    assert (FOLDER / name).read_text() == pages()[name], "run `make cards`"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_metadata_of_the_examples_passes_the_rules_and_comes_back_the_same(name):
    content = (FOLDER / name).read_text()
    assert problems(content) == []
    card = ModelCard(content)
    assert card.data.to_dict() == metadata_load(FOLDER / name)
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()


def test_the_rules_find_what_stock_cards_get_wrong():
    assert problems("---\nlicence: license\n---\n") == ["'licence' should be 'license'"]
    assert problems("---\nlicense: my own\n---\n")
    assert problems("---\nbase_model: /home/me/model\n---\n")
    assert problems("---\nmodel-index: [{name: a, results: [{task: {}}]}]\n---\n")
    assert problems("# no metadata\n")


@pytest.mark.parametrize("make", [dpo, ppo, grpo])
def test_a_card_names_its_rewards_data_parts_and_versions(make):
    card = make()
    content = render(card)
    run, adapter = card.facts.run, card.facts.adapter
    for name, weight in run.rewards:
        assert f"| `{name}` | {weight:.4g} |" in content
    for part in adapter.parts:
        assert f"| {part.name} | {part.parameters:,} |" in content
    for package, version in card.facts.versions.items():
        assert f"{package} {version}" in content
    assert f"{adapter.parameters:,} (0.996 % of the base's 3,754,622,976)" in content
    assert f"https://arxiv.org/abs/{METHODS[run.method].paper}" in content
    assert run.trainer in content


def test_a_base_in_another_format_is_not_given_a_snippet_that_cannot_work():
    assert "AutoModelForImageTextToText" in render(grpo())
    assert "AutoModelForImageTextToText" not in render(ppo())
    assert "hf-vlm-rl convert OpenGVLab/InternVL2_5-4B base" in render(ppo())


def test_without_an_evaluation_a_card_says_that_nothing_was_shown():
    assert "No evaluation was given" in render(dpo())
    assert "No evaluation was given" not in render(grpo())
    assert "model-index" not in dpo().metadata()


def test_text_of_the_user_cannot_break_a_table():
    card = grpo()
    card.evaluations = [Evaluation("A | B\nC", "accuracy", 10, 0.5)]
    assert "| A \\| B C | accuracy | 10 | - | 0.5 |" in render(card)


def test_a_card_needs_the_facts_of_a_run():
    with pytest.raises(ValueError, match="without facts"):
        render(AdapterCardData())


BAD = {
    "no rows": ({"n": 0}, "Expected the number of rows"),
    "not finite": ({"after": float("nan")}, "Expected a finite number"),
    "interval elsewhere": ({"after_ci": (0.6, 0.7)}, r"Expected \(low, high\)"),
    "interval of nothing": ({"before_ci": (0.1, 0.2)}, r"Expected \(low, high\)"),
    "confidence in percent": ({"confidence": 95}, "Expected a level such as 0.95"),
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD)
def test_an_evaluation_that_makes_no_sense_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Evaluation(**{"dataset": "Photos", "metric": "accuracy", "n": 10, "after": 0.5} | changed)


def test_a_string_in_place_of_a_list_is_refused():
    with pytest.raises(ValueError, match=r"Expected a list, such as \['en'\]"):
        AdapterCardData(language="en")


@pytest.mark.parametrize("make", [dpo, ppo, grpo])
def test_the_stored_content_of_a_card_gives_the_same_card(make, tmp_path):
    store(make(), tmp_path)
    assert render(stored(tmp_path)) == render(make())


def test_a_damaged_stored_card_is_named(tmp_path):
    (tmp_path / FILE).write_text('{"facts": 3}')
    with pytest.raises(ValueError, match=r"card.json cannot be read .* save again, or delete it"):
        stored(tmp_path)


def test_the_learning_curve_is_the_first_metric_that_was_logged_twice(tmp_path):
    logs = [{"step": 1, "loss": 3.0, "reward": 0.1}, {"step": 2, "loss": 2.0}, {"train_loss": 2.5}]
    assert learning_curve(logs, ["reward", "loss"]) == Curve("loss", ((1, 3.0), (2, 2.0)))
    assert learning_curve(logs[:1], ["reward", "loss"]) is None
    assert draw(Curve("loss", ((1, 3.0), (2, 2.0))), tmp_path / "assets" / "curve.png")
    assert (tmp_path / "assets" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_every_method_has_its_trainer_and_a_card_of_another_one_names_the_trainer_alone():
    assert {method_of(f"{key.upper()}Trainer") for key in METHODS} == set(METHODS)
    assert method_of("AsyncGRPOTrainer") == "grpo"
    card = grpo()
    run = dataclasses.replace(
        card.facts.run, trainer="OnlineDPOTrainer", method=method_of("OnlineDPOTrainer")
    )
    card.facts = dataclasses.replace(card.facts, run=run, stages=())
    assert card.all_tags() == ["trl", "lora", *grpo().all_tags()[3:]]
    content = render(card)
    assert "trained with the stock `OnlineDPOTrainer` of" in " ".join(content.split())
    assert problems(content) == []
    assert "arXiv" not in content


def test_what_the_user_gives_and_what_the_run_fills_are_apart():
    filled = {item.name for item in dataclasses.fields(AdapterCardData) if not item.init}
    assert filled == {"repo_id", "facts"}
