"""Counted tokens are those that trainers make, for every family; rows above a limit are found and dropped."""

import copy
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from datasets import Dataset, Features, Image, Json, List
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.dpo_trainer import DataCollatorForVisionPreference
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from hf_vlm_rl import ImageError, VLMFamily
from hf_vlm_rl.data import filter_overlong, prompt_lengths
from hf_vlm_rl.data.lengths.stand_in import Counter
from hf_vlm_rl.errors import DataError
from hf_vlm_rl.families import FAMILIES as TABLE
from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.processing.images.read import load_rgb
from hf_vlm_rl.processing.images.size import image_size
from tests.images import photo

# Widths and heights that fall on both sides of what tiles, patches and merges round to.
SIZES = [(112, 112), (113, 57), (56, 300), (420, 90), (251, 249), (333, 500), (29, 31), (224, 111)]
FORMS = ["images", "image", "block"]
TURNED = 6  # EXIF: width and height are exchanged


def turn(*content):
    return [{"role": "user", "content": list(content)}]


def text(words):
    return {"type": "text", "text": words}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Paths of photos of all sizes, one of them turned by EXIF."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for number, size in enumerate(SIZES):
        paths.append(str(folder / f"{number}.jpg"))
        exif = PIL.Image.Exif()
        exif[PIL.ExifTags.Base.Orientation] = TURNED if number == 2 else 1
        photo(("cat", "coffee", "astronaut")[number % 3], size).save(paths[-1], exif=exif)
    return paths


def mixture(family, pictures):
    """One image a row in every size, two, three, and none where the family takes that."""
    one = [(f"What is in picture {number}?", [path]) for number, path in enumerate(pictures)]
    more = [("Compare them, please.", pictures[:2]), ("All?", [pictures[5], pictures[2], pictures[5]])]
    return one + more + ([] if TABLE[family].needs_image else [("Say hello to the user.", [])])


def rows_of(pairs, form="images"):
    if form == "block":
        prompts = [
            turn(*({"type": "image", "image": path} for path in paths), text(words)) for words, paths in pairs
        ]
        return Dataset.from_dict({"prompt": prompts}, features=Features({"prompt": Json()}))
    marked = [turn(*[{"type": "image"}] * len(paths), text(words)) for words, paths in pairs]
    paths = [paths for _, paths in pairs]
    if form == "images":
        features = Features({"prompt": Json(), "images": List(Image())})
        return Dataset.from_dict({"prompt": marked, "images": paths}, features=features)
    features = Features({"prompt": Json(), "image": Image()})
    single = [own[0] if own else None for own in paths]
    return Dataset.from_dict({"prompt": marked, "image": single}, features=features)


def seen_by_grpo(processing, row):
    """Ids as TRL's GRPOTrainer asks for them."""
    images = row["images"] if "images" in row else [row["image"]] if row.get("image") else []
    prompt = prepare_multimodal_messages(row["prompt"], images=images) if images else row["prompt"]
    return processing.apply_chat_template(
        [prompt], add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"][0]


def test_all_families_are_counted_by_size():
    # A row that says so is proven by the next test.
    assert all(TABLE[family].counts_by_size for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_lengths_are_those_of_the_processing_class(family, policy_for, pictures):
    processing = policy_for(family).processing_class
    dataset = rows_of(mixture(family, pictures))
    expected = [len(seen_by_grpo(processing, row)) for row in dataset]
    fast = prompt_lengths(dataset, processing)
    assert fast.dtype == np.int64
    assert fast.tolist() == expected
    assert prompt_lengths(dataset, processing, process_images=True).tolist() == expected
    one_size = ("llava", "paligemma", "gemma3")
    assert len(set(expected[: len(SIZES)])) > 1 or family in one_size


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "llava_onevision"])
def test_images_count_in_columns_and_in_blocks(family, form, policy_for, pictures):
    processing = policy_for(family).processing_class
    pairs = [pair for pair in mixture(family, pictures) if form != "image" or len(pair[1]) < 2]
    expected = prompt_lengths(rows_of(pairs), processing).tolist()
    assert prompt_lengths(rows_of(pairs, form), processing).tolist() == expected
    decoded = [image_size(path) for path in pictures]
    assert decoded[2] == (300, 56)  # turned


def answered(pairs, *names):
    columns = {"prompt": [turn(*[{"type": "image"}] * len(paths), text(words)) for words, paths in pairs]}
    columns["images"] = [paths for _, paths in pairs]
    for number, name in enumerate(names):
        texts = ["It is " + "so " * (number + row) for row in range(len(pairs))]
        columns[name] = [[{"role": "assistant", "content": each}] for each in texts]
    features = {name: Json() for name in columns} | {"images": List(Image())}
    return Dataset.from_dict(columns, features=Features(features))


def seen_by(collator, row):
    """Tokens of the longest sequence that TRL's own collator makes of a row."""
    return int(collator([row])["attention_mask"].sum(1).max())


@pytest.mark.parametrize("names", [("completion",), ("chosen", "rejected")], ids="-".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_with_completions_lengths_are_those_of_dpo_and_sft(family, names, policy_for, pictures):
    processing = policy_for(family).processing_class
    dataset = answered(mixture(family, pictures)[4:], *names)
    kind = DataCollatorForVisionLanguageModeling if len(names) == 1 else DataCollatorForVisionPreference
    expected = [seen_by(kind(processing), row) for row in dataset]
    counted = prompt_lengths(dataset, processing, completions=True)
    assert counted.tolist() == expected
    assert (counted > prompt_lengths(dataset, processing)).all()


def test_whole_conversations_and_plain_texts_are_counted(policy_for, pictures):
    processing = policy_for("qwen2_5_vl").processing_class
    messages = [*turn({"type": "image"}, text("What?")), {"role": "assistant", "content": "A cat."}]
    features = Features({"messages": Json(), "images": List(Image())})
    talk = Dataset.from_dict({"messages": [messages], "images": [pictures[:1]]}, features=features)
    full = prepare_multimodal_messages(messages, images=[PIL.Image.open(pictures[0])])
    expected = processing.apply_chat_template([full], tokenize=True, return_dict=True)["input_ids"][0]
    assert prompt_lengths(talk, processing, completions=True).tolist() == [len(expected)]
    plain = Dataset.from_dict({"prompt": ["Say hello."]})
    assert prompt_lengths(plain, processing).tolist() == [len(processing(text="Say hello.")["input_ids"][0])]


def test_template_arguments_are_the_trainers(policy_for):
    processing = policy_for("qwen2_5_vl").processing_class
    dataset = Dataset.from_dict({"prompt": [turn(text("Hi."))]})
    given = {"chat_template": "{{ messages[0]['content'][0]['text'] }}"}
    short = prompt_lengths(dataset, processing, chat_template_kwargs=given)
    assert short.tolist() == [len(processing(text="Hi.")["input_ids"][0])]
    assert short < prompt_lengths(dataset, processing)


def test_processes_share_the_rows(policy_for, pictures):
    processing = policy_for("internvl").processing_class
    dataset = rows_of(mixture("internvl", pictures))
    alone = prompt_lengths(dataset, processing)
    assert prompt_lengths(dataset, processing, num_proc=2).tolist() == alone.tolist()
    broken = rows_of([*mixture("internvl", pictures), ("Gone?", ["/gone.jpg"])])
    with pytest.raises(ImageError, match=r"Row 11: .*/gone\.jpg"):
        prompt_lengths(broken, processing, num_proc=2)


def test_counting_leaves_store_and_caches_alone(policy_for, pictures, tmp_path):
    processing = policy_for("internvl").processing_class
    store, before = processing.image_store, len(processing.image_store)
    cached = len(processing.state.processed)
    prompt_lengths(rows_of(mixture("internvl", pictures)), processing)
    assert (len(store), len(processing.state.processed)) == (before, cached)
    assert processing.image_store is store


def test_families_that_were_added_are_processed_for_real(policy_for):
    processing = policy_for("internvl").processing_class
    assert not Counter(processing).pixels
    counted = Counter(processing, pixels=True)
    assert counted.pixels
    state = copy.copy(processing.state)
    state.family = VLMFamily("own_vl", projector=("model.projector",))
    assert Counter(processing.replace_state(state)).pixels


def test_long_rows_are_dropped_and_reported(policy_for, pictures, caplog):
    processing = policy_for("internvl").processing_class
    dataset = rows_of(mixture("internvl", pictures))
    lengths = prompt_lengths(dataset, processing)
    limit = int(np.sort(lengths)[-3])
    kept, report = filter_overlong(dataset, processing, limit)
    assert report.dropped == np.flatnonzero(lengths > limit).tolist()
    assert report.longest == lengths.max()
    assert prompt_lengths(kept, processing).tolist() == [each for each in lengths if each <= limit]
    assert f"{len(report.dropped)} of 11 rows have more than {limit} tokens" in caplog.text
    same, none = filter_overlong(dataset, processing, int(lengths.max()))
    assert (len(same), none.dropped) == (11, [])


def test_a_limit_may_be_strict_and_never_drops_everything(policy_for, pictures):
    processing = policy_for("internvl").processing_class
    dataset = rows_of(mixture("internvl", pictures)[:3])
    limit = int(prompt_lengths(dataset, processing).max()) - 1
    with pytest.raises(
        DataError, match=rf"of 3 rows have more than {limit} tokens .*the longest has {limit + 1}"
    ):
        filter_overlong(dataset, processing, limit, on_overlong="raise")
    with pytest.raises(DataError, match="3 of 3 rows"):
        filter_overlong(dataset, processing, 3)
    for options in ({"max_tokens": 0}, {"max_tokens": 9, "on_overlong": "cut"}):
        with pytest.raises(ValueError, match="1 token or more, and 'drop' or 'raise'"):
            filter_overlong(dataset, processing, **options)


@pytest.mark.parametrize(
    ("row", "error", "told"),
    [
        (
            {"prompt": turn({"type": "image"}), "images": []},
            ImageError,
            "Row 1: .*1 empty image blocks but 0",
        ),
        ({"prompt": [], "images": []}, DataError, "Row 1: no prompt"),
        ({"prompt": turn(text("<IMG_CONTEXT>")), "images": []}, ImageError, "Row 1, message 0"),
    ],
)
def test_bad_rows_are_named(row, error, told, policy_for):
    features = Features({"prompt": Json(), "images": List(Image())})
    dataset = Dataset.from_list([{"prompt": turn(text("Hi.")), "images": []}, row], features=features)
    processing = policy_for("internvl").processing_class
    with pytest.raises(error, match=told):
        prompt_lengths(dataset, processing)
    with pytest.raises(DataError, match="Row 0: no completion, chosen, rejected or messages"):
        prompt_lengths(dataset, processing, completions=True)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def exif(orientation):
    found = PIL.Image.Exif()
    found[PIL.ExifTags.Base.Orientation] = orientation
    return found


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_sizes_from_headers_are_those_of_the_upright_image(kind, orientation):
    data = encoded(photo("coffee", (90, 60)), kind, exif=exif(orientation))
    assert image_size(data) == load_rgb(data).size
    assert image_size({"bytes": data, "path": "x"}) == load_rgb(data).size


XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
RAW = b"\nexif\n      32\n" + exif(6).tobytes().hex().encode()
LATE = {
    "eXIf": exif(6).tobytes().removeprefix(b"Exif\0\0"),
    "iTXt": b"XML:com.adobe.xmp\0\0\0\0\0" + XMP,
    "tEXt": b"Raw profile type exif\0" + RAW,
    "zTXt": b"Raw profile type exif\0\0" + zlib.compress(RAW),
}


@pytest.mark.parametrize("name", LATE)
def test_exif_after_the_pixels_of_a_png_counts(name):
    plain = encoded(photo("coffee", (90, 60)), "PNG")
    end = plain.index(b"IEND") - 4
    late = plain[:end] + chunk(name, LATE[name]) + plain[end:]
    assert load_rgb(late).size == image_size(late) == (60, 90)
    dated = plain[:end] + chunk("tEXt", b"date:create\0today") + plain[end:]
    assert load_rgb(dated).size == image_size(dated) == (90, 60)


def test_pngs_are_not_decoded_for_their_size():
    plain = encoded(photo("coffee", (90, 60)), "PNG")
    end = plain.index(b"IEND") - 4
    broken = plain[: end - 40] + bytes(40) + chunk("tEXt", b"date:create\0today") + plain[end:]
    assert image_size(broken) == (90, 60)


def chunk(name, content):
    body = name.encode() + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("kind", ["GIF", "BMP", "PPM"])
def test_sizes_of_other_formats(kind):
    data = encoded(photo("coffee", (90, 60)), kind)
    assert image_size(data) == (90, 60)


def test_headers_are_enough_and_what_has_none_is_refused(tmp_path):
    data = encoded(photo("coffee", (90, 60)), "JPEG")
    path = tmp_path / "cut.jpg"
    path.write_bytes(data[:-200])
    assert image_size(str(path)) == image_size(path.as_uri()) == (90, 60)
    for broken in (b"no image", "/gone.jpg", {"bytes": None, "path": None}, 7):
        with pytest.raises(ImageError):
            image_size(broken)
    assert image_size(Path(path).as_uri().replace("file://", "file://localhost")) == (90, 60)
