"""Boxes in the coordinates of each family's models, against what their processors do."""

import pickle

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families import FAMILIES
from hf_vlm_rl.families.box_coordinates import BoxCoordinates
from hf_vlm_rl.rewards import DetectionReward, IoUReward, parse_boxes
from tests.images import photo
from tests.tiny import recipe

DOCUMENTED = [name for name, family in FAMILIES.items() if family.boxes]
MARKS = [f"<|{mark}_{end}|>" for mark in ("object_ref", "box") for end in ("start", "end")]
MARKS += ["<ref>", "</ref>", "<box>", "</box>"]
SIZE = (640, 480)
BOX = [64, 48, 320, 240]


@pytest.fixture(scope="module")
def processing_class_for(checkpoint):
    loaded = {}

    def load(family):
        if family not in loaded:
            loaded[family] = AutoVLMPolicy.from_pretrained(
                checkpoint(family), dtype="float32"
            ).processing_class
        return loaded[family]

    return load


def test_a_box_in_the_numbers_and_the_text_of_each_family(processing_class_for):
    expected = {
        "internvl": ([100, 100, 500, 500], "<ref>cat</ref><box>[[100, 100, 500, 500]]</box>"),
        "qwen2_vl": (
            [100, 100, 500, 500],
            "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(100,100),(500,500)<|box_end|>",
        ),
        # The tiny processor resizes 640 x 480 to 6 x 5 merged patches of 28 pixels.
        "qwen2_5_vl": ([17, 14, 84, 70], '{"bbox_2d": [17, 14, 84, 70], "label": "cat"}'),
        "qwen3_vl": ([100, 100, 500, 500], '{"bbox_2d": [100, 100, 500, 500], "label": "cat"}'),
        "paligemma": ([102, 102, 512, 512], "<loc0102><loc0102><loc0512><loc0512> cat"),
    }
    assert set(DOCUMENTED) == set(expected)
    for family, (numbers, text) in expected.items():
        boxes = BoxCoordinates.of(processing_class_for(family))
        assert boxes.to_model(BOX, SIZE) == numbers, family
        assert boxes.to_text(BOX, SIZE, "cat") == text, family


def test_paligemmas_numbers_are_its_makers(processing_class_for):
    # big_vision trains on round(fraction * 1023) and evaluates token / 1023, y first.
    boxes = BoxCoordinates.of(processing_class_for("paligemma"))
    box = [0.25 * 640, 0.2 * 480, 0.9 * 640, 480]
    tokens = [round(0.2 * 1023), round(0.25 * 1023), 1023, round(0.9 * 1023)]
    assert boxes.to_model(box, SIZE) == tokens
    assert boxes.to_pixels([0, 0, 1023, 1023], SIZE) == [0, 0, *SIZE]
    assert boxes.to_pixels(tokens, SIZE)[2] == pytest.approx(tokens[3] / 1023 * 640, abs=1e-9)


@pytest.mark.parametrize("size", [(640, 480), (481, 37), (20, 999), (112, 112), (3, 5), (1600, 1200)])
def test_pixels_of_qwen2_5_vl_are_those_of_the_processors_grid(processing_class_for, size):
    processing_class = processing_class_for("qwen2_5_vl")
    processor = recipe("qwen2_5_vl").processor.image_processor
    (_, rows, columns) = processor(photo("coffee", size), return_tensors="pt")["image_grid_thw"][0].tolist()
    boxes = BoxCoordinates.of(processing_class)
    assert boxes.to_model([0, 0, *size], size) == [0, 0, columns * 14, rows * 14]


@pytest.mark.parametrize("family", DOCUMENTED)
def test_back_in_pixels_a_box_is_off_by_the_rounding_alone(processing_class_for, family):
    boxes = BoxCoordinates.of(processing_class_for(family))
    for size in [(640, 480), (333, 77), (1999, 1501)]:
        width, height = size
        box = [0.1 * width, 0.2 * height, 0.7 * width, 0.9 * height]
        back = boxes.to_pixels(boxes.to_model(box, size), size)
        # Half a unit of the model's coordinates, in pixels.
        w, h = boxes.resize(size) if boxes.resize else (boxes.format.scale,) * 2
        for value, expected, unit in zip(back, box, (width / w, height / h) * 2, strict=True):
            assert abs(value - expected) <= 0.51 * unit
        assert boxes.to_pixels(boxes.to_model([0, 0, *size], size), size) == pytest.approx([0, 0, *size])


@pytest.mark.parametrize("family", DOCUMENTED)
def test_rewards_read_what_the_text_says_also_after_the_models_tokenizer(processing_class_for, family):
    processing_class = processing_class_for(family)
    boxes = pickle.loads(pickle.dumps(BoxCoordinates.of(processing_class)))
    right, names = [[0, 0, 320, 240], [100, 40, 640, 480]], ["cat", "big dog"]
    text = boxes.to_text(right, SIZE, names)
    tokenizer = recipe(family).processor.tokenizer
    tokenizer.add_tokens(MARKS, special_tokens=True)  # as in the real ones
    decoded = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert not any(mark in decoded for mark in MARKS)
    reward = DetectionReward(coordinates=boxes, labels="labels", thresholds=[0.95])
    for said in (text, decoded):
        assert reward([said], boxes=[right], labels=[names], image_size=[SIZE]) == [1.0], said
    one = boxes.to_text(right[0], SIZE)
    assert IoUReward(coordinates=boxes, threshold=0.95)([one], box=right[:1], image_size=[SIZE]) == [1.0]
    assert len(parse_boxes(one)) == 1


@pytest.mark.parametrize("family", ["llava", "gemma3"])
def test_families_without_documented_boxes_ask_for_a_choice(processing_class_for, family):
    with pytest.raises(ValueError, match=rf"'{family}' documents no boxes.*relative\(1000\)"):
        BoxCoordinates.of(processing_class_for(family))


def test_fractions_and_refusals():
    fractions = BoxCoordinates.relative(1)
    assert fractions.to_text(BOX, SIZE) == '{"bbox_2d": [0.1, 0.1, 0.5, 0.5]}'
    assert (
        fractions.to_text([BOX, BOX], SIZE)
        == '[{"bbox_2d": [0.1, 0.1, 0.5, 0.5]}, {"bbox_2d": [0.1, 0.1, 0.5, 0.5]}]'
    )
    assert fractions.to_text([], SIZE) == "[]"
    assert fractions.to_model([-0.5, 0, 640.5, 480], SIZE) == [0, 0, 1, 1]
    for box in ([0, 0, 700, 480], [10, 10, 5, 20], [1, 2, 3], [0, 0, float("nan"), 4]):
        with pytest.raises(ValueError, match=r"640 x 480 pixels.*inside"):
            fractions.to_model(box, SIZE)
    with pytest.raises(ValueError, match="1 boxes and 2 labels"):
        fractions.to_text([BOX], SIZE, ["a", "b"])
    with pytest.raises(ValueError, match="scale=0"):
        BoxCoordinates.relative(0)
    with pytest.raises(TypeError, match=r"Got a dict.*AutoVLMPolicy"):
        BoxCoordinates.of({})
