"""Train and validation share no image; sizes are as near to the wanted ones as documented."""

import random
import shutil
from collections import Counter

import pytest
from datasets import Dataset, Features, Image, IterableDataset, Json, List, Value

from hf_vlm_rl.data import train_validation_split
from hf_vlm_rl.errors import DataError
from tests.images import PHOTOS, photo

SIZE = (48, 40)


def turn(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Paths of photos, all different."""
    folder = tmp_path_factory.mktemp("photos")
    paths = [folder / f"{name}.png" for name in PHOTOS]
    for name, path in zip(PHOTOS, paths, strict=True):
        photo(name, SIZE).save(path)
    return [str(path) for path in paths]


def rows_of(images, **columns):
    """A dataset as the readers make it: lists of paths, decoded on access."""
    rows = {"prompt": [turn(f"Question {row}?") for row in range(len(images))], "images": images, **columns}
    features = Features({"prompt": Json(), "images": List(Image())})
    features |= {name: Value("string") for name in columns}
    return Dataset.from_dict(rows, features=Features(features))


def questions(split):
    return {prompt[0]["content"] for prompt in split["prompt"]}


def pixels(split):
    return {image.tobytes() for row in split for image in row["images"]}


def test_no_image_is_on_both_sides_and_no_row_is_lost(photos):
    images = [[photos[row % 9]] + [photos[9 + row % 3]] * (row % 4 == 0) for row in range(60)]
    dataset = rows_of(images)
    for seed in range(5):
        splits = train_validation_split(dataset, 12, seed=seed)
        train, validation = splits["train"], splits["validation"]
        assert not pixels(train) & pixels(validation)
        assert not questions(train) & questions(validation)
        assert len(train) + len(validation) == 60
        assert validation["prompt"] == sorted(validation["prompt"], key=dataset["prompt"][:].index)


def test_one_image_under_two_names_or_inside_the_dataset_is_one_image(photos, tmp_path):
    copied = tmp_path / "copy.png"
    shutil.copy(photos[0], copied)
    stored = {"bytes": copied.read_bytes(), "path": None}
    images = [[photos[0]], [str(copied)], [stored], [photos[1]]]
    splits = train_validation_split(rows_of(images), 1)
    assert questions(splits["validation"]) == {"Question 3?"}
    recompressed = tmp_path / "other.jpg"
    photo(PHOTOS[0], SIZE).save(recompressed)
    assert len(train_validation_split(rows_of([[photos[0]], [str(recompressed)]]), 1)["train"]) == 1


def test_rows_are_connected_through_others(photos):
    # 0-1-2 and 3-4 share images in chains; 5 is alone.
    images = [photos[:1], photos[0:2], photos[1:3], photos[4:6], photos[5:6], photos[7:8]]
    for wanted, sizes in {1: {1}, 2: {1, 2}, 3: {3}, 4: {4, 5}, 5: {5}}.items():
        splits = train_validation_split(rows_of(images), wanted)
        assert len(splits["validation"]) in sizes
        assert not pixels(splits["train"]) & pixels(splits["validation"])


@pytest.mark.parametrize("form", ["column", "block", "nested"])
def test_images_count_wherever_a_row_has_them(form, photos):
    used = [photos[0], photos[1], photos[0], photos[2], photos[0], photos[3]]
    if form == "column":
        rows = [{"prompt": turn(str(row)), "image": path} for row, path in enumerate(used)]
        dataset = Dataset.from_list(rows).cast_column("image", Image())
    elif form == "nested":
        rows = [{"prompt": turn(str(row)), "evidence": {"photo": path}} for row, path in enumerate(used)]
        features = Features({"prompt": Json(), "evidence": {"photo": Image()}})
        dataset = Dataset.from_list(rows, features=features)
    else:
        blocks = [
            [{"type": "image", "image": f"file://{path}"}, {"type": "text", "text": str(row)}]
            for row, path in enumerate(used)
        ]
        dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": own}]} for own in blocks])
    splits = train_validation_split(dataset, 3, seed=1)
    sides = [{str(prompt) for prompt in splits[name]["prompt"]} for name in ("train", "validation")]
    shared = {str(dataset[row]["prompt"]) for row in (0, 2, 4)}
    assert shared in sides


def test_nothing_is_decoded(photos, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    splits = train_validation_split(rows_of([[str(broken)], [photos[0]], []]), 1)
    assert len(splits["train"]) == 2


def test_rows_without_images_stay_together_by_their_prompt(photos):
    texts = ["one", "two", "one", "three", "one"]
    rows = [{"prompt": turn(text), "images": []} for text in texts]
    features = Features({"prompt": Json(), "images": List(Image())})
    splits = train_validation_split(Dataset.from_list(rows, features=features), 3)
    assert {len(questions(splits["validation"])), len(splits["validation"])} == {1, 3}


def test_rows_with_equal_values_stay_together_and_none_is_no_value(photos):
    groups = ["a", None, "b", "a", None, "b", None]
    dataset = rows_of([[path] for path in photos[:7]], patient=groups)
    for seed in range(4):
        splits = train_validation_split(dataset, 2, seed=seed, by="patient")
        patients = [{each for each in split["patient"] if each} for split in splits.values()]
        assert not patients[0] & patients[1]
        assert len(splits["validation"]) == 2
    assert any(
        len(
            [
                each
                for each in train_validation_split(dataset, 2, seed=s, by="patient")["validation"]["patient"]
                if each is None
            ]
        )
        == 2
        for s in range(9)
    )


def test_the_seed_decides_and_the_same_seed_gives_the_same_split(photos):
    dataset = rows_of([[path] for path in photos])
    chosen = [
        tuple(questions(train_validation_split(dataset, 0.25, seed=s)["validation"])) for s in (0, 0, 1)
    ]
    assert set(chosen[0]) == set(chosen[1]) != set(chosen[2])
    assert len(chosen[0]) == round(len(photos) / 4)


def test_a_size_that_groups_do_not_allow_is_missed_by_as_little_as_possible_and_said(photos, caplog):
    images = [[photos[0]]] * 4 + [[photos[1]]] * 3
    splits = train_validation_split(rows_of(images), 2)
    assert len(splits["validation"]) == 3
    assert "3 rows of 7 for validation instead of 2" in caplog.text
    assert "in groups of up to 4 rows" in caplog.text


@pytest.mark.parametrize("seed", range(40))
def test_a_size_is_missed_by_at_most_half_of_the_smallest_group_on_the_larger_side(seed):
    dice = random.Random(seed)
    sizes = [dice.choice([1, 2, 3, 5, 8, 13][seed % 3 :]) for _ in range(dice.randint(2, 9))]
    patients = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
    dataset = Dataset.from_dict({"prompt": list(map(str, range(sum(sizes)))), "patient": patients})
    wanted = dice.randint(1, sum(sizes) - 1)
    splits = train_validation_split(dataset, wanted, seed=seed, by="patient")
    left, taken = (Counter(splits[name]["patient"]) for name in ("train", "validation"))
    assert not left.keys() & taken.keys()
    assert Counter(patients) == left + taken
    smaller, larger = (taken, left) if 2 * wanted <= sum(sizes) else (left, taken)
    wanted = min(wanted, sum(sizes) - wanted)
    if wanted < min(sizes):
        assert smaller.total() == min(sizes)
    else:
        assert abs(smaller.total() - wanted) <= min(larger.values()) / 2


def test_an_image_in_every_row_cannot_be_kept_on_one_side(photos):
    with pytest.raises(DataError, match="All 3 rows are connected"):
        train_validation_split(rows_of([photos[:1], photos[:2], [photos[2], photos[0]]]), 1)


def test_a_missing_file_is_named_with_its_row(photos):
    with pytest.raises(DataError, match=r"Row 1: .*/gone\.png.*No such file"):
        train_validation_split(rows_of([[photos[0]], ["/gone.png"]]), 1)


@pytest.mark.parametrize(
    ("validation", "told"),
    [
        (0, "0 for 3 rows"),
        (3, "3 for 3 rows"),
        (1.0, "share in"),
        (0.0, "share in"),
        (True, "True"),
        ("1", "'1'"),
    ],
)
def test_what_is_no_size_is_refused(validation, told, photos):
    with pytest.raises(ValueError, match=told):
        train_validation_split(rows_of([[path] for path in photos[:3]]), validation)


def test_other_columns_and_streams_are_refused(photos):
    dataset = rows_of([[path] for path in photos[:3]])
    with pytest.raises(DataError, match=r"by=\['doctor'\]"):
        train_validation_split(dataset, 1, by="doctor")
    with pytest.raises(DataError, match="IterableDataset"):
        train_validation_split(dataset.to_iterable_dataset(), 1)
    assert isinstance(dataset.to_iterable_dataset(), IterableDataset)


def test_selected_and_shuffled_rows_are_split_as_they_are(photos):
    dataset = rows_of([[photos[row % 4]] for row in range(12)]).shuffle(seed=3).select(range(9))
    splits = train_validation_split(dataset, 3)
    assert questions(splits["train"]) | questions(splits["validation"]) == questions(dataset)
    assert not pixels(splits["train"]) & pixels(splits["validation"])
