"""`check_data` finds each planted fault, and nothing else."""

import base64
import io
import json
import os
import random
import re
import tarfile

import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.data import check_data, load_any, prompt_lengths
from hf_vlm_rl.data.image_facts import image_facts
from hf_vlm_rl.errors import ImageError
from hf_vlm_rl.processing.images.read import load_rgb
from tests.data.files import jsonl, llava, sizes
from tests.images import photo


def encoded(number, form="JPEG", size=(48, 40), **options):
    """An image file, another for each number."""
    image = photo("cat", size)
    image.putpixel((0, 0), (number % 256, 0, 0))
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def turned(number, orientation):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return encoded(number, "PNG", exif=exif)


def plant(folder):
    """A file of rows with thirty faults among forty others: the file, and the kind by line of each fault."""
    contents, rows, faults = {}, [], {}

    def row(kind, image=None, text=None, **fields):
        number = len(rows) + 1
        rows.append(text or llava(f"<image>What is {number}?", str(number), image=image, **fields))
        if kind:
            faults[number] = kind

    def good(number):
        contents[f"good{number}.png"] = encoded(number, "PNG")
        row(None, f"good{number}.png")

    for number in range(20):
        good(number)
    for number, (form, share) in enumerate(
        [("JPEG", 0.8), ("JPEG", 0.9), ("PNG", 0.5), ("PNG", 0.9), ("BMP", 0.5), ("GIF", 0.5), ("PPM", 0.6)]
    ):
        data = encoded(30 + number, form)
        contents[f"cut{number}.{form.lower()}"] = data[: int(len(data) * share)]
        row("truncated", f"cut{number}.{form.lower()}")
    for number, data in enumerate([b"", b"no image", b"%!PS-Adobe-3.0 EPSF", b"<svg/>", encoded(40)[:6]]):
        contents[f"no{number}.jpg"] = data
        row("unreadable", f"no{number}.jpg")
    for number in range(4):
        row("missing", f"gone{number}.jpg")
    for number in range(2):
        contents[f"huge{number}.png"] = encoded(50 + number, "PNG", (300, 200 + number))
        row("huge", f"huge{number}.png")
    for number, orientation in enumerate((3, 6, 8)):
        contents[f"turned{number}.png"] = turned(60 + number, orientation)
        row("rotated", f"turned{number}.png")
    for number in range(2):
        contents[f"copy{number}.png"] = contents[f"good{number}.png"]
        row("copy", f"copy{number}.png")
    for number in range(2):
        row("duplicate", text=rows[number] | {"id": number})
    row("row", text="{")
    row("row", text="[1]")
    row("row", text={"conversations": []})
    row("row", text=llava("<image><image>", "a", image="good0.png"))
    row("row", text=llava("A?", "a", image="../good0.png"))
    for number in range(20, 40):
        good(number)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return jsonl(folder / "rows.jsonl", rows), faults


@pytest.fixture
def planted(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "50000")
    return plant(tmp_path)


@pytest.mark.parametrize("num_proc", [None, 2])
def test_thirty_planted_faults_are_found_and_nothing_else(planted, num_proc, tmp_path):
    path, faults = planted
    assert len(faults) == 30
    report = check_data(path, num_proc=num_proc, write=tmp_path / "clean.jsonl")
    found = {int(re.search(r"line (\d+)$", each.place)[1]): each for each in report.findings}
    assert {line: each.kind for line, each in found.items()} == faults
    assert len(report.findings) == 30
    assert all(each.place.startswith(str(path)) for each in report.findings)
    assert report.clean == report.rows - 25 == 45
    clean = load_any(tmp_path / "clean.jsonl", verify_images=True)
    lines = [line for line in range(1, 71) if faults.get(line) in (None, "rotated", "copy")]
    assert clean["answer"][:] == [str(line) for line in lines]
    assert clean[0]["prompt"] == load_any(path, on_error="skip")[0]["prompt"]
    assert {each.kind for each in check_data(tmp_path / "clean.jsonl").findings} == {"rotated", "copy"}


def test_a_sound_dataset_has_no_findings(photos, tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", [llava("A?", [1, 2, 3, 4], image="cat.png")])
    report = check_data(path, image_folder=photos)
    assert (report.findings, report.rows, report.clean, report.images) == ([], 1, 1, 1)
    assert str(report) == "1 of 1 rows can be used; 1 images decoded; found: nothing"


FORMS = {form: encoded(1, form, (32, 24)) for form in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.integers(0, 2**32))
def test_drawn_damage_is_found_where_training_would_end(form, seed):
    """Bytes are changed, left out or cut off: it is a fault if the loader raises, and none otherwise."""
    draw, data = random.Random(seed), bytearray(FORMS[form])
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data))
        match draw.randrange(3):
            case 0:
                data[place] = draw.randrange(256)
            case 1:
                del data[place : place + draw.randint(1, 40)]
            case 2:
                del data[max(place, 1) :]
        if not data:
            break
    facts = image_facts({"path": None, "bytes": bytes(data)})
    try:
        load_rgb(bytes(data))
    except ImageError:
        assert facts.fault in ("unreadable", "huge", "truncated")
    else:
        assert facts.fault is None


def test_archives_are_checked_and_written_without_files(tmp_path):
    with tarfile.open(tmp_path / "rows.tar", "w") as archive:
        for number, data in enumerate((encoded(0), encoded(1)[:-100])):
            for name, content in (("jpg", data), ("json", json.dumps({"prompt": "A?"}).encode())):
                member = tarfile.TarInfo(f"{number}.{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    report = check_data(tmp_path / "rows.tar", write=tmp_path / "clean.jsonl")
    assert [(each.kind, each.image) for each in report.findings] == [("truncated", "1.jpg")]
    (line,) = (tmp_path / "clean.jsonl").read_text().splitlines()
    assert json.loads(line)["images"] == ["data:image;base64," + base64.b64encode(encoded(0)).decode()]
    assert sizes(load_any(tmp_path / "clean.jsonl")[0]) == [(48, 40)]


def test_the_page_runs_nothing_that_a_row_says(photos, tmp_path):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\ud83d"
    rows = [
        llava(evil[:-1], evil[:-1], image="cat.png", note=evil[:-1]),
        llava("A?", "a", image='"><script>gone.png'),
    ]
    path = jsonl(tmp_path / "rows.jsonl", rows)
    check_data(path, image_folder=photos, page=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "onerror" in page.replace("&lt;img src=x onerror", "onerror")
    assert "<img src=x" not in page
    assert page.count('<img src="data:image/jpeg;base64,') == 1
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert page.index("missing") < page.index("user: ")


def test_tokens_are_those_of_prompt_lengths(photos, tmp_path, policy_for):
    processing = policy_for("qwen2_5_vl").processing_class
    path = jsonl(tmp_path / "rows.jsonl", [llava("A?", "a", image="cat.png"), llava("Longer words?", "a")])
    expected = prompt_lengths(load_any(path, image_folder=photos), processing).tolist()
    report = check_data(path, image_folder=photos, processing_class=processing, page=tmp_path / "page.html")
    assert report.tokens == {f"{path}, line {line}": tokens for line, tokens in enumerate(expected, 1)}
    assert str(report).endswith(f"{max(expected)} at most ({path}, line 1)")
    for place, tokens in report.tokens.items():
        assert f"<small>{place}; {tokens} tokens</small>" in (tmp_path / "page.html").read_text()


def test_a_row_without_its_image_says_nothing_of_the_types_of_columns(tmp_path):
    (tmp_path / "good.png").write_bytes(encoded(0, "PNG"))
    rows = [llava("<image>a?", "b", image="missing.png", id="x")]
    rows += [llava(f"<image>{number}?", "b", image="good.png", id=number) for number in range(3)]
    path = jsonl(tmp_path / "rows.jsonl", rows)
    report = check_data(path, write=tmp_path / "clean.jsonl")
    assert (report.clean, [each.kind for each in report.findings]) == (3, ["missing"])
    assert (
        load_any(tmp_path / "clean.jsonl")["id"][:] == load_any(path, on_error="skip")["id"][:] == [0, 1, 2]
    )


def test_a_row_is_back_when_its_image_is(tmp_path):
    (tmp_path / "good.png").write_bytes(encoded(0, "PNG"))
    names = ("good.png", "late.png")
    path = jsonl(tmp_path / "rows.jsonl", [llava(f"<image>{name}?", name, image=name) for name in names])
    for there in (False, True, False):
        (tmp_path / "late.png").unlink(missing_ok=True)
        if there:
            (tmp_path / "late.png").write_bytes(encoded(1, "PNG"))
        expected = list(names[: 1 + there])
        report = check_data(path, write=tmp_path / "clean.jsonl")
        assert [each.kind for each in report.findings] == ["missing"] * (not there)
        assert load_any(tmp_path / "clean.jsonl")["answer"][:] == expected
        assert load_any(path, on_error="skip")["answer"][:] == expected


def test_the_command_lists_and_says_by_its_status(planted, checkpoint, tmp_path, capsys):
    path, _ = planted
    clean, page = str(tmp_path / "clean.jsonl"), str(tmp_path / "page.html")
    assert cli.main(["data", "check", str(path), "--write", clean, "--page", page]) == 1
    told = capsys.readouterr().out
    assert f"truncated: {path}, line 21: {tmp_path}/cut0.jpeg: cut off or damaged" in told
    assert "45 of 70 rows can be used" in told
    model = str(checkpoint("qwen2_5_vl"))
    assert cli.main(["data", "check", clean, "--model", model, "--num-proc", "2"]) == 0
    assert "tokens of a prompt: " in capsys.readouterr().out
    assert cli.main(["data", "check", clean, "--write", clean]) == 1
    assert "Expected another file than the source" in capsys.readouterr().err


def test_two_spellings_of_a_path_are_one_file(photos, tmp_path):
    os.symlink(photos, tmp_path / "photos")
    names = ("photos/cat.png", "./photos/cat.png", "photos/../photos/cat.png", f"{photos}/cat.png")
    path = jsonl(tmp_path / "rows.jsonl", [llava("A?", name, image=name) for name in names])
    report = check_data(path)
    assert (report.findings, report.clean, report.images) == ([], 4, 1)


def test_only_images_that_decode_are_counted_and_others_are_told_apart(planted, tmp_path):
    report = check_data(planted[0])
    assert report.images == 43  # 40 good ones and 3 turned; copies have bytes that were seen
    (tmp_path / "folder.png").mkdir()
    os.symlink("loop.png", tmp_path / "loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    names = ("folder.png", "loop.png", "pipe.png", "gone.png", "good0.png/gone.png", "a\0b.png")
    path = jsonl(tmp_path / "odd.jsonl", [llava("A?", name, image=name) for name in names])
    report = check_data(path)
    assert [(each.kind, each.reason) for each in report.findings] == [
        ("unreadable", "it is a folder or a device, and no file"),
        ("unreadable", "Too many levels of symbolic links"),
        ("unreadable", "it is a folder or a device, and no file"),
        *[("missing", "there is no such file")] * 3,
    ]
    assert (report.images, report.clean) == (0, 0)
