"""A folder per class becomes one row per image."""

import pytest

from hf_vlm_rl.data import load_image_folder
from hf_vlm_rl.errors import DataError
from tests.data.files import IMAGE, sizes, turn, user
from tests.images import photo


@pytest.fixture
def root(tmp_path):
    """Two classes, one with a folder inside and a file that is passed over."""
    for name, file in (("cats", "b.png"), ("cats", "young/a.JPG"), ("cups", "c.webp")):
        path = tmp_path / "photos" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        photo("cat" if name == "cats" else "coffee", (24, 32 if name == "cats" else 40)).save(path)
    (tmp_path / "photos" / "cats" / ".DS_Store").touch()
    return tmp_path / "photos"


def test_the_class_is_the_answer(root):
    dataset = load_image_folder(root, "What is this?", answer="label", system="S")
    assert dataset["label"] == ["cats", "cats", "cups"]
    assert [sizes(row) for row in dataset] == [[(24, 32)], [(24, 32)], [(24, 40)]]
    assert dataset["prompt"] == [[turn("system", "S"), user(IMAGE, "What is this?")]] * 3


def test_the_class_can_be_the_completion(root):
    dataset = load_image_folder(root, "[img] What is this?", answer=None, completion=True, image_mark="[img]")
    assert dataset.column_names == ["prompt", "images", "completion"]
    assert dataset["completion"] == [[turn("assistant", name)] for name in ("cats", "cats", "cups")]
    assert dataset[0]["prompt"] == [user(IMAGE, " What is this?")]


def test_the_prompt_can_list_the_classes(root):
    asked = load_image_folder(root, "Which of {choices} is <image>?")[0]["prompt"]
    assert asked == [user("Which of cats, cups is ", IMAGE, "?")]
    asked = load_image_folder(root, "{choices}?", choices=["cups", "dogs", "cats"])[0]["prompt"]
    assert asked == [user(IMAGE, "cups, dogs, cats?")]
    with pytest.raises(DataError, match=r"classes \['cups'\], which are not in choices"):
        load_image_folder(root, "{choices}?", choices=["cats"])
    with pytest.raises(ValueError, match="Got choices='cats, cups'"):
        load_image_folder(root, "{choices}?", choices="cats, cups")


def test_a_name_that_is_no_unicode_is_named_and_skipped(root):
    (root / "cats" / "b.png").rename(root / "cats" / "\udcff.png")
    with pytest.raises(DataError, match=r"udcff\.png: the name is no UTF-8"):
        load_image_folder(root, "What?")
    assert len(load_image_folder(root, "What?", on_error="skip")) == 2


@pytest.mark.parametrize("field", ["{choice}", "{classes}", "{0}"])
def test_other_fields_of_a_question_are_refused(root, field):
    with pytest.raises(ValueError, match=rf"\['\{field}'\]. Expected no field but \{{choices\}}"):
        load_image_folder(root, f"One of {field}?")


def test_braces_that_are_no_field_are_text(root):
    asked = load_image_folder(root, 'One of {choices}, as {"class": ...} or {{name}}: { }')[0]["prompt"]
    assert asked == [user(IMAGE, 'One of cats, cups, as {"class": ...} or {name}: { }')]


def test_files_that_cannot_be_used_are_listed_or_skipped(root):
    photo("cat", (8, 8)).save(root / "loose.png")
    (root / "cups" / "notes.txt").touch()
    with pytest.raises(
        DataError, match=r"2 of 5 files(.|\n)*notes\.txt.*'\.txt'(.|\n)*loose\.png.*no folder"
    ):
        load_image_folder(root, "A?")
    refused = []
    dataset = load_image_folder(root, "A?", on_error=refused.append)
    assert dataset["answer"] == ["cats", "cats", "cups"]
    assert len(refused) == 2


def test_broken_images_are_found_where_headers_are_read(root):
    (root / "cups" / "d.png").write_bytes(b"no image")
    assert len(load_image_folder(root, "A?")) == 4
    with pytest.raises(DataError, match=r"d\.png: the image .* cannot be read"):
        load_image_folder(root, "A?", verify_images=True)


def test_folders_without_classes_are_refused(tmp_path):
    with pytest.raises(DataError, match="There is no folder"):
        load_image_folder(tmp_path / "nowhere", "A?")
    photo("cat", (8, 8)).save(tmp_path / "cat.png")
    with pytest.raises(DataError, match=r"1 file\(s\) lie directly in it"):
        load_image_folder(tmp_path, "A?")


def test_a_new_file_is_seen(root):
    assert len(load_image_folder(root, "A?")) == 3
    photo("cat", (8, 8)).save(root / "cups" / "new.png")
    assert load_image_folder(root, "A?")["answer"] == ["cats", "cats", "cups", "cups"]


@pytest.mark.parametrize("target", ["photos", "photos/cats", "photos/cats/young"])
def test_a_link_that_leads_into_itself_is_named(root, target):
    link = root / "cats" / "young" / "again"
    link.symlink_to(root.parent / target)
    with pytest.raises(DataError, match=r"again leads to the same folder as .*\. Remove the link"):
        load_image_folder(root, "What is this?")


def test_links_that_multiply_without_a_loop_are_named(tmp_path):
    for level in range(30):  # 2^30 ways to one file
        (tmp_path / f"{level}").mkdir()
        for way in "ab":
            (tmp_path / f"{level}" / way).symlink_to(tmp_path / f"{level + 1}")
    photo("cat", (8, 8)).save((tmp_path / "30").mkdir() or tmp_path / "30" / "a.png")
    with pytest.raises(DataError, match="leads to the same folder as"):
        load_image_folder(tmp_path / "0", "What is this?")


def test_a_class_can_be_a_link_to_a_folder_elsewhere(root, tmp_path):
    (root / "cups").rename(tmp_path / "elsewhere")
    (root / "cups").symlink_to(tmp_path / "elsewhere")
    assert load_image_folder(root, "What is this?", answer="label")["label"] == ["cats", "cats", "cups"]
