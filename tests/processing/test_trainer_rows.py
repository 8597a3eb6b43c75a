"""Rows in TRL's columns become conversations and ids; errors name them by their index in the dataset."""

import pickle

import pytest

from hf_vlm_rl.errors import DataError, ImageError
from hf_vlm_rl.processing.trainer_rows import conversation, encode, naming_row, read
from tests.images import photo


def user(*blocks):
    return [{"role": "user", "content": list(blocks)}]


IMAGE = {"type": "image"}
TEXT = {"type": "text", "text": "Row 0: what is it?"}


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"question": "?"}, DataError, r"^Row 7: no prompt; its columns are \['question'\]"),
        (
            {"prompt": user(IMAGE, TEXT)},
            ImageError,
            "^Row 7: The conversation has 1 empty image blocks but 0",
        ),
        ({"prompt": user(IMAGE, TEXT), "image": "/gone.png"}, ImageError, r"^Row 7, image 0: .*/gone\.png"),
        ({"prompt": "<IMG_CONTEXT> Row 0"}, ImageError, "^Row 7: 1 image placeholders"),
        (
            {"prompt": user({"type": "text", "text": "<IMG_CONTEXT>"})},
            ImageError,
            r"^Row 7, message 0 \(user\)",
        ),
    ],
)
def test_errors_name_the_row_of_the_dataset(row, error, message, policy_for):
    processing = policy_for("internvl").processing_class
    with pytest.raises(error, match=message) as raised:
        encode(processing, 7, row)
    assert "Row 0" not in str(raised.value).replace(str(row), "")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), vars(again)) == (str(raised.value), vars(raised.value))


def test_an_error_that_quotes_another_row_is_not_rewritten():
    with pytest.raises(ImageError, match=r"^Row 3, image 1: the file 'Row 0: a\.png'$"), naming_row(3):
        raise ImageError("the file 'Row 0: a.png'", 0, "image 1")
    with pytest.raises(DataError, match=r"^Row 3: Row 0 is bad$"), naming_row(3):
        raise ValueError("Row 0 is bad")


def test_images_of_columns_and_of_blocks_come_in_order():
    inside, outside = photo("cat", (8, 8)), photo("coffee", (8, 8))
    row = {
        "prompt": user({"type": "image", "image": inside}, IMAGE, TEXT),
        "images": [outside],
        "answer": "cat",
    }
    messages, images = conversation(row)
    assert images == [inside, outside]
    assert [block.get("image") for block in messages[0]["content"]] == [inside, outside, None]
    assert conversation(row, read_image=lambda image: image.size)[1] == [(8, 8), (8, 8)]
    assert conversation({"prompt": "What?", "image": inside}) == ("What?", [inside])
    assert row["prompt"] == user({"type": "image", "image": inside}, IMAGE, TEXT)
    assert read(0, row).columns == {"images": [outside], "answer": "cat"}
