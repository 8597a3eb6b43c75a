"""A card that is written anew keeps what its author added."""

import pytest
from huggingface_hub import ModelCard

from hf_vlm_rl.hub.cards.merge import BEGIN, END, merge
from hf_vlm_rl.hub.cards.render import render
from model_cards.make import dpo, grpo

FRESH, OLD = render(grpo()), render(dpo())


def merged(existing, fresh=FRESH, **options):
    return merge(fresh, existing, "README.md", **options)


def metadata(content):
    return ModelCard(content).data


def test_merging_with_itself_changes_nothing():
    assert merged(FRESH) == FRESH


def test_text_above_and_below_the_block_stays():
    existing = OLD.replace(BEGIN, "Mine, above.\n\n" + BEGIN) + "\nMine, below.\n"
    content = merged(existing)
    above, rest = content.split(BEGIN)
    assert above.endswith("Mine, above.\n\n")
    assert rest.split(END)[1].strip() == "Mine, below."
    assert "Brands by GRPO" in rest
    assert "faithful-dpo" not in rest


def test_text_inside_the_block_is_written_anew():
    existing = FRESH.replace("## Results", "## My results")
    assert merged(existing) == FRESH


@pytest.mark.parametrize(
    ("key", "line"), [("co2_eq_emissions", "co2_eq_emissions: 3"), ("thumbnail", "thumbnail: a.png")]
)
def test_metadata_that_the_author_added_stays(key, line):
    existing = OLD.replace("library_name: peft", f"library_name: peft\n{line}", 1)
    assert key in metadata(merged(existing))


def test_tags_that_the_author_added_stay_and_those_of_another_method_go():
    existing = OLD.replace("- hf-vlm-rl\n", "- hf-vlm-rl\n- brands\n", 1)
    tags = metadata(merged(existing)).tags
    assert "brands" in tags
    assert "grpo" in tags
    assert "dpo" not in tags


def test_results_of_an_earlier_run_go_with_it_and_results_of_the_author_stay():
    assert "model-index" in metadata(FRESH).to_dict()
    assert "model-index" not in metadata(merged(FRESH, fresh=OLD)).to_dict()
    index = "model-index:\n- name: mine\n  results: []\n"
    existing = OLD.replace("library_name: peft\n", f"library_name: peft\n{index}", 1)
    again = merged(existing, fresh=OLD)
    assert "- name: mine" in again


def test_a_license_that_the_author_changed_stays_unless_one_is_given():
    existing = FRESH.replace("\nlicense: other\nlicense_name: qwen-research\n", "\nlicense: mit\n", 1)
    kept = metadata(merged(existing))
    assert (kept.license, kept.license_name) == ("mit", None)
    assert metadata(merged(merged(existing))).license == "mit"
    assert metadata(merged(existing, new_license=True)).license == "other"


def test_the_license_of_another_base_is_not_taken_for_the_authors():
    assert metadata(FRESH).license == "other"
    assert metadata(merged(FRESH, fresh=OLD)).license == "apache-2.0"


def test_a_card_that_a_person_wrote_goes_below_the_block():
    content = merged("---\nlicense: mit\n---\n# My model\n\nIt is mine.\n")
    assert content.index(END) < content.index("# My model")
    assert metadata(content).license == "mit"
    assert merged(content) == content


TRL = """---
library_name: transformers
licence: license
---

# Model Card for out

This model is a fine-tuned version of [x](https://huggingface.co/x).
It has been trained using [TRL](https://github.com/huggingface/trl).

## Quick start

## Training procedure

### Framework versions

- TRL: 1.12.0

## Citations

```bibtex
# not a heading
```"""


def peft_card(path):
    from huggingface_hub import ModelCardData

    ModelCard.from_template(ModelCardData(pipeline_tag="text-generation")).save(path)
    return path.read_text() + "\n### Framework versions\n\n- PEFT 0.21.2\n"


def test_cards_that_nobody_wrote_are_replaced(tmp_path):
    assert merged(TRL) == FRESH
    assert merged(peft_card(tmp_path / "card.md")) == FRESH


def test_stock_cards_that_somebody_edited_are_kept(tmp_path):
    edited = TRL.replace("## Quick start", "## My findings\n\n## Quick start")
    assert "## My findings" in merged(edited)
    assert "Mine." in merged(peft_card(tmp_path / "card.md") + "\nMine.\n")


@pytest.mark.parametrize("damage", [lambda card: card.replace(END, ""), lambda card: card + BEGIN])
def test_damaged_marks_are_refused(damage):
    with pytest.raises(ValueError, match="Restore the marks"):
        merged(damage(FRESH))


def test_metadata_that_is_not_yaml_is_refused():
    with pytest.raises(ValueError, match=r"The metadata of README.md cannot be read"):
        merged("---\na: [\n---\n# Text\n")


def test_two_texts_that_differ_are_refused():
    with pytest.raises(ValueError, match="Both the local card and README"):
        merged(OLD + "\nOne.\n", fresh=FRESH + "\nAnother.\n")
    assert merged(OLD + "\nOne.\n", fresh=FRESH + "\nOne.\n").endswith("One.\n")
    assert merged(OLD, fresh=FRESH + "\nOne.\n").endswith("One.\n")


def test_metadata_whose_aliases_multiply_is_refused():
    lines = [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    card = "\n".join(["---", "x0: &a0 [1]", *lines, "---", "# Mine"])
    with pytest.raises(ValueError, match=r"The metadata of .* cannot be read \(its aliases, written out"):
        merged(card)
