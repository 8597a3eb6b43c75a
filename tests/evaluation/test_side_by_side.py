"""A base and its adapter answer the same question."""

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.errors import ImageError
from hf_vlm_rl.evaluation.side_by_side import side_by_side
from tests.evaluation.forced import Says
from tests.images import photo
from tests.loading.adapters.models import write_adapter

IMAGE = photo("cat", (112, 84))


@pytest.fixture
def adapted(checkpoint, tmp_path):
    """`adapted(family)`: a random adapter on a tiny checkpoint, as it is loaded from disk."""

    def load(family):
        base = AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32")
        return AutoVLMPolicy.from_pretrained(write_adapter(base, tmp_path / "adapter"), dtype="float32")

    return load


def test_the_sides_are_those_of_the_base_and_of_the_adapter(adapted, policy_for):
    model = adapted("qwen2_5_vl")
    options = {"max_new_tokens": 8, "do_sample": False}
    base, adapter = side_by_side(model, "What is it?", IMAGE, **options)
    assert (base.side, adapter.side) == ("base", "adapter")
    assert base.text == policy_for("qwen2_5_vl").chat("What is it?", IMAGE, **options)
    assert adapter.text == model.chat("What is it?", IMAGE, **options)
    assert base.text != adapter.text  # the adapter is random
    assert side_by_side(model, "What is it?", **options)[1].text == model.chat("What is it?", **options)


@pytest.mark.parametrize(
    ("family", "text", "box"),
    [
        # Pixels after the resize, to 140 x 112.
        ("qwen2_5_vl", '{"bbox_2d": [20, 28, 80, 84], "label": "cat"}', (16, 21, 64, 63)),
        # Thousandths.
        ("qwen3_vl", '{"bbox_2d": [125, 250, 625, 750], "label": "cat"}', (14, 21, 70, 63)),
        ("internvl", "<ref>cat</ref><box>[[125, 250, 625, 750]]</box>", (14, 21, 70, 63)),
    ],
)
def test_boxes_are_in_pixels_of_the_image(family, text, box, adapted):
    model = adapted(family)
    says = Says(model.processing_class, text)
    answers = side_by_side(model, "Where is the cat?", IMAGE, prefix_allowed_tokens_fn=says)
    assert [answer.boxes for answer in answers] == [((box, "cat"),)] * 2


def test_boxes_are_cut_at_the_edges_and_left_out_beside_the_image(adapted):
    model = adapted("qwen3_vl")
    says = Says(model.processing_class, "[[500, 500, 1200, 2000], [1100, 0, 1200, 10], [9, 9, 1, 1]]")
    base, _ = side_by_side(model, "Where?", IMAGE, prefix_allowed_tokens_fn=says)
    assert base.boxes == (((56, 42, 112, 84), ""),)


def test_a_family_without_boxes_and_a_question_without_an_image_give_none(adapted):
    for family, image in (("llava", IMAGE), ("qwen3_vl", None)):
        model = adapted(family)
        says = Says(model.processing_class, "[1, 2, 30, 40]")
        base, _ = side_by_side(model, "Where?", image, prefix_allowed_tokens_fn=says)
        assert "30, 40" in base.text
        assert base.boxes == ()


def test_what_cannot_be_asked_is_refused(adapted, policy_for, tmp_path):
    with pytest.raises(TypeError, match="without an adapter"):
        side_by_side(policy_for("qwen2_5_vl"), "What is it?", IMAGE)
    with pytest.raises(ValueError, match="empty question"):
        side_by_side(adapted("qwen2_5_vl"), "  ", IMAGE)
    with pytest.raises(ImageError):
        side_by_side(adapted("qwen2_5_vl"), "What is it?", tmp_path / "nothing.png")
