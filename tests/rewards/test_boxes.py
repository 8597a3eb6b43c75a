"""Boxes: intersection over union, what is read as a box, referring expressions and detection."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.ops import box_iou as torchvision_iou

from hf_vlm_rl import ColumnError
from hf_vlm_rl.families.box_coordinates import BoxCoordinates
from hf_vlm_rl.rewards import DetectionReward, IoUReward, box_iou, iou_reward, parse_boxes


def boxes(seed, count, largest):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, largest, (count, 2, 2))
    return np.concatenate([corners.min(1), corners.max(1)], axis=1)


@pytest.mark.parametrize("largest", [1e-3, 1, 2, 1000, 1e8])
def test_iou_is_torchvisions(largest):
    a, b = boxes(0, 50, largest), boxes(1, 30, largest)
    expected = torchvision_iou(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert np.abs(box_iou(a, b) - expected).max() < 1e-12
    assert np.abs(box_iou(a, a).diagonal() - 1).max() < 1e-12


def test_iou_of_boxes_without_area_is_0():
    assert box_iou([[1, 1, 1, 1]], [[1, 1, 1, 1], [0, 0, 2, 2]]).tolist() == [[0.0, 0.0]]
    assert box_iou([], [[0, 0, 1, 1]]).shape == (0, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2, 3.5, 4]", [((1, 2, 3.5, 4), "")]),
        ("(1,2),(3,4)", [((1, 2, 3, 4), "")]),
        ("<|box_start|>(1,2),(3,4)<|box_end|>", [((1, 2, 3, 4), "")]),
        ("<|object_ref_start|>a cat<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>",
         [((1, 2, 3, 4), "a cat")]),
        ("<ref>cat</ref><box>[[1, 2, 3, 4], [5, 6, 7, 8]]</box>",
         [((1, 2, 3, 4), "cat"), ((5, 6, 7, 8), "cat")]),
        ("cat[[1, 2, 3, 4]]dog[[5, 6, 7, 8]]", [((1, 2, 3, 4), "cat"), ((5, 6, 7, 8), "dog")]),
        ('{"bbox_2d": [1, 2, 3, 4], "label": "bird\'s nest"}', [((1, 2, 3, 4), "bird's nest")]),
        ("[{'label': 'cat', 'bbox': [1, 2, 3, 4]}]", [((1, 2, 3, 4), "cat")]),
        ('```json\n[{"bbox_2d": [1, 2, 3, 4]},\n{"bbox_2d": [5, 6, 7, 8]}',
         [((1, 2, 3, 4), ""), ((5, 6, 7, 8), "")]),
        ("<loc0001><loc0002><loc0003><loc0004> cat ; <loc0005><loc0006><loc0007><loc0008> dog",
         [((1, 2, 3, 4), "cat"), ((5, 6, 7, 8), "dog")]),
        ("the {left} one: [1, 2, 3, 4]", [((1, 2, 3, 4), "the {left} one")]),
        ("[-1, .5, 1., 2]", [((-1, 0.5, 1, 2), "")]),
        ("[1, 2, 3]", []),
        ("[1, 2, 3, 4, 5]", []),
        ("[1, 2, 3, NaN]", []),
        ("[1, 2, 3, 9999999999]", []),
        ("1, 2, 3, 4", []),
        ("<loc0001><loc0002><loc0003>", []),
        ("", []),
    ],
)  # fmt: skip
def test_boxes_are_read_in_every_syntax(text, expected):
    assert [(box.numbers, box.label) for box in parse_boxes(text)] == expected


def test_more_than_a_thousand_boxes_are_no_answer():
    assert len(parse_boxes("[1,2,3,4]" * 1000)) == 1000
    assert parse_boxes("[1,2,3,4]" * 1001) is None


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("<think>[9, 9, 10, 10]</think><answer>[0, 0, 10, 10]</answer>", 1),
        ("[0, 0, 10, 5]", 0.5),
        ("[5, 0, 15, 10]", 1 / 3),
        ("[0, 0, 10, 10] [0, 0, 10, 10]", 1),
        ("[0, 0, 10, 10] [0, 0, 10, 9]", 0),
        ("[10, 10, 0, 0]", 0),
        ("[0, 0, 0, 0]", 0),
        ("none", 0),
    ],
)
def test_a_referring_expression_has_one_box(said, value):
    assert iou_reward([said], box=[[0, 0, 10, 10]]) == pytest.approx([value], abs=1e-12)
    assert IoUReward(threshold=0.5)([said], box=[[0, 0, 10, 10]]) == [value >= 0.5]


def upright(width, height, orientation=1):
    image, exif = Image.new("RGB", (width, height)), Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize(
    "size",
    [
        {"image_size": (200, 100)},
        {"image_size": np.array([200, 100])},
        {"width": 200, "height": 100},
        {"image": Image.new("RGB", (200, 100))},
        {"images": [Image.new("RGB", (200, 100))]},
        {"image": {"bytes": upright(200, 100), "path": None}},
        {"image": Image.open(io.BytesIO(upright(200, 100, orientation=6)))},  # not turned, as in stock
        {"image": "photo.jpg"},
    ],
)
def test_sizes_come_from_any_of_the_usual_columns(size, tmp_path):
    if size == {"image": "photo.jpg"}:  # as datasets hand on images that are not decoded
        (tmp_path / "photo.jpg").write_bytes(upright(100, 200, orientation=6))
        size = {"image": {"bytes": None, "path": str(tmp_path / "photo.jpg")}}
    reward = IoUReward(coordinates=BoxCoordinates.relative(1000))
    columns = {name: [value] for name, value in size.items()}
    assert reward(["[100, 200, 500, 1000]"], box=[[20, 20, 100, 100]], **columns) == [1]


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ({}, "needs the size"),
        ({"image": "cat.png"}, "row 0 of the column 'image'.*image_size"),
        (
            {"images": [Image.new("RGB", (2, 2))] * 2},
            "row 0 of the column 'images'.*one image that can be read",
        ),
        ({"image": "http://127.0.0.1:9/cat.png"}, "row 0 of the column 'image'.*image_size"),
        ({"image": {"bytes": b"no image"}}, "row 0 of the column 'image'.*image_size"),
        ({"image_size": (200, 0)}, "1 or more"),
        ({"width": float("inf"), "height": 100}, "row 0 of the column 'width'.*finite number"),
        ({"image_size": 200}, r"\(width, height\)"),
    ],
)
def test_sizes_that_cannot_be_known_are_refused(size, told):
    columns = {name: [value] for name, value in size.items()}
    with pytest.raises(ColumnError, match=told):
        IoUReward(coordinates=BoxCoordinates.relative(1))([""], box=[[0, 0, 1, 1]], **columns)


@pytest.mark.parametrize(
    "box",
    [
        [1, 2, 3],
        [1, 2, 1, 4],
        [4, 4, 1, 1],
        [0, 0, 1, float("nan")],
        "0,0,1,1",
        [[0, 0, 1, 1]],
        "[1, 2, 3]",
        "[0, 0, 1, NaN]",
        '{"0": 1}',
        "[" * 100_000,
    ],
)
def test_a_right_box_must_be_one(box):  # fmt: skip
    with pytest.raises(ColumnError, match=r"row 0 of the column 'box'.*x1 < x2"):
        iou_reward(["[0,0,1,1]"], box=[box])


@pytest.mark.parametrize(
    "box", [[8, 16, 40, 48], (8, 16, 40, 48), np.array([8, 16, 40, 48]), "[8, 16, 40, 48]"]
)
def test_a_right_box_may_be_a_list_or_text(box):
    assert iou_reward(["[8, 16, 40, 32]"], box=[box]) == [0.5]


# x, y, width and height of a box that is fine: read as corners, it is none or leaves the image.
OUTSIDE = [[100, 50, 150, 101.5], [-1.5, 0, 10, 10], [150, 10, 202, 60]]


@pytest.mark.parametrize("box", OUTSIDE)
def test_a_right_box_outside_its_image_is_refused_with_its_row(box):
    columns = {"image_size": [(200, 100)] * 2}
    boxes = BoxCoordinates.relative(1000)
    told = r"_reward: row 1 of the column 'box.*200 x 100 pixels.*convert \[x, y, width, height\]"
    with pytest.raises(ColumnError, match=told):
        IoUReward(coordinates=boxes)(["", ""], box=[[0, 0, 200, 100], box], **columns)
    with pytest.raises(ColumnError, match=told):
        DetectionReward(coordinates=boxes)(["", ""], boxes=[[], [[0, 0, 9, 9], box]], **columns)


def test_a_right_box_may_stick_out_by_a_pixel_and_rows_without_one_do_not_count():
    reward = IoUReward(coordinates=BoxCoordinates.relative(1000), threshold=0.9)
    columns = {"box": [[-1, 0, 201, 101], None], "image_size": [(200, 100)] * 2}
    assert reward(["[0, 0, 1000, 1000]"] * 2, **columns) == [1.0, None]


@pytest.mark.parametrize("other", [[], [Image.new("RGB", (9, 9))] * 2, None])
def test_rows_of_other_tasks_may_have_any_images(other):
    image = Image.new("RGB", (200, 100))
    boxes, images = [[20, 20, 100, 100], None], [[image], other]
    coordinates = BoxCoordinates.relative(1000)
    said = ["[100, 200, 500, 1000]"] * 2
    assert IoUReward(coordinates=coordinates)(said, box=boxes, images=images) == [1, None]
    reward = DetectionReward(coordinates=coordinates)
    assert reward(said, boxes=[[boxes[0]], None], images=images) == [1, None]


def written(*numbers):
    return str([list(each) for each in numbers])


A, B, C = (0, 0, 10, 10), (100, 0, 110, 10), (200, 0, 210, 10)


@pytest.mark.parametrize(
    ("said", "right", "value"),
    [
        (written(A, B), [A, B], 1),
        (written(B, A), [A, B], 1),
        (written(A), [A, B], 1 / 2),
        (written(A, B, C), [A, B], 2 / 3),
        (written(A, A), [A], 1 / 2),
        (written(A, C), [A, B], 1 / 3),
        (written((0, 0, 10, 7.6)), [A], 0.6),  # reaches 0.5 ... 0.75 of ten thresholds
        (written((0, 0, 10, 4)), [A], 0),
        (written((10, 10, 0, 0), A), [A], 1 / 2),
        ("[]", [], 1),
        ("none", [], 1),
        ("None.", [], 1),
        ("no objects.", [], 1),
        ("[ ]", [], 1),
        ("null", [], 1),
        ("```json\n[\n]\n```", [], 1),
        ("None.", [A], 0),
        ("none of these", [], 0),
        (written(A), [], 0),
        ("[]", [A], 0),
        ("sorry", [], 0),
    ],
)
def test_detection_matches_one_to_one_and_charges_missing_and_extra_boxes(said, right, value):
    assert DetectionReward()([said], boxes=[right]) == pytest.approx([value], abs=1e-12)


def test_detection_takes_the_best_matching_not_the_first():
    # The first written box overlaps both; greedy matching would give it away.
    said = written((0, 0, 10, 10), (0, 0, 10, 6.9))
    right = [(0, 0, 10, 9), (0, 0, 10, 20)]
    assert DetectionReward(thresholds=[0.5])([said], boxes=[right]) == [1]


def test_detection_weights_and_labels():
    labelled = '[{"bbox_2d": [0, 0, 10, 10], "label": "Cat"}, {"bbox_2d": [100, 0, 110, 10], "label": "cat"}]'
    columns = {"boxes": [[A, B]], "labels": [["cat", "dog"]]}
    assert DetectionReward(labels="labels")([labelled], **columns) == pytest.approx([1 / 3])
    assert DetectionReward(labels="labels", extra=0)([labelled], **columns) == [1 / 2]
    assert DetectionReward(labels="labels", missing=0, extra=0)([labelled], **columns) == [1]
    with pytest.raises(ColumnError, match="row 0 has 2 in 'boxes' and 1 in 'labels'"):
        DetectionReward(labels="labels")([labelled], boxes=[[A, B]], labels=[["cat"]])


@pytest.mark.parametrize(
    "said",
    [
        '[0, 0, 5, 5] or {"bbox_2d": [10, 10, 50, 50]}',
        "<loc0000><loc0000><loc0005><loc0005> or [10, 10, 50, 50]",
        "[10, 10, 50, 50] or\n```json\n[0, 0, 5, 5]\n```",
    ],
)
def test_two_boxes_in_two_syntaxes_are_two_guesses(said):
    assert iou_reward([said], box=[[0, 0, 5, 5]]) == [0]
    assert len(parse_boxes(said)) == 2


def test_the_size_of_an_image_is_that_of_images_first():
    reward = IoUReward(coordinates=BoxCoordinates.relative(1000))
    columns = {"image": [None], "images": [[Image.new("RGB", (200, 100))]]}
    assert reward(["[100, 200, 500, 1000]"], box=[[20, 20, 100, 100]], **columns) == [1]
