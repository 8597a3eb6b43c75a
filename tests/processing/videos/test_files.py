"""Video files: what is decoded, how often, and what it takes."""

import io
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from hf_vlm_rl import AutoVLMPolicy, ImageError, ImageStore
from hf_vlm_rl.processing.images.stored import StoredVideo
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.images import photo
from tests.tiny import recipe
from tests.videos import SIZE, encoded, moving

pytest.importorskip("av", reason="the extra `video` is not installed")


@pytest.fixture
def processing_for(tmp_path, checkpoint):
    """`processing_for(family, **options of the store)`: a processing class with a store of its own."""

    def make(family, **options):
        store = ImageStore(tmp_path / "images", **options)
        return AutoVLMPolicy.from_pretrained(checkpoint(family), image_store=store).processing_class

    return make


def stored(processing, **block) -> StoredVideo:
    """The video of a ticket."""
    (ticket,) = tickets_of(processing, **block)
    return processing.image_store.get(ticket).image


def tickets_of(processing, **block) -> list[int]:
    text = processing.state.videos.placeholder
    return [ticket for ticket, _ in decode_tickets(processing(images=[[block]], text=[text])["pixel_values"])]


def pixels(processing, video: StoredVideo) -> np.ndarray:
    return np.stack([np.asarray(processing.image_store.frame(frame)) for frame in video.frames])


@pytest.mark.parametrize("form", ["path", "str", "file url", "bytes", "dict"])
def test_files_come_in_every_form(form, processing_for, tmp_path):
    processing, data = processing_for("qwen2_5_vl"), encoded("astronaut")
    path = tmp_path / "clip one.mp4"
    path.write_bytes(data)
    forms = {
        "path": path,
        "str": str(path),
        "file url": path.as_uri(),
        "bytes": data,
        "dict": {"bytes": data, "path": None},
    }
    video = stored(processing, video=forms[form], num_frames=6)
    assert video.metadata["frames_indices"] == [0, 4, 8, 12, 16, 20]
    assert video.metadata == video.metadata | {
        "total_num_frames": 24,
        "fps": 8.0,
        "duration": 3.0,
        "width": SIZE[0],
        "height": SIZE[1],
    }
    # Lossy, but each frame is nearest to the one that it was made of.
    originals = moving("astronaut", 24, step=4).astype(float)
    for index, frame in zip(video.metadata["frames_indices"], pixels(processing, video), strict=True):
        errors = np.abs(originals - frame).mean(axis=(1, 2, 3))
        assert errors.argmin() == index
        assert errors[index] < 12


@pytest.mark.parametrize(
    ("codec", "container"),
    [("libx264", "mp4"), ("libx264", "matroska"), ("mpeg4", "avi"), ("libvpx-vp9", "webm")],
)
def test_containers_with_and_without_a_number_of_frames(codec, container, processing_for):
    video = stored(processing_for("qwen2_5_vl"), video=encoded("cat", 16, 8, codec, container), fps=2)
    assert video.metadata["total_num_frames"] == 16
    assert video.metadata["frames_indices"] == [0, 4, 8, 12]


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl", "internvl", "llava_onevision"])
@pytest.mark.parametrize("options", [{"fps": 2}, {"fps": 4.0}, {"num_frames": 4}, {"num_frames": 8}])
def test_frames_are_those_that_the_native_processor_samples(family, options, processing_for):
    from transformers.video_utils import VideoMetadata

    video = stored(processing_for(family), video=encoded("coffee", 32), **options)
    metadata = VideoMetadata(total_num_frames=32, fps=8.0, duration=4.0, width=SIZE[0], height=SIZE[1])
    expected = recipe(family).processor.video_processor.sample_frames(metadata=metadata, **options)
    assert video.metadata["frames_indices"] == [int(index) for index in expected]


def test_a_checkpoint_that_samples_by_itself_does_so_without_being_asked(processing_for):
    # Qwen3-VL: two frames a second.
    assert len(stored(processing_for("qwen3_vl"), video=encoded("coffee", 32)).frames) == 8
    # Qwen2-VL: all.
    assert len(stored(processing_for("qwen2_vl"), video=encoded("coffee", 32)).frames) == 32


def test_sampling_can_be_asked_of_the_whole_call(processing_for):
    processing = processing_for("qwen2_5_vl")
    conversation = [{"role": "user", "content": [{"type": "video", "video": encoded("cat", 32)}]}]
    lengths = [
        len(
            processing.apply_chat_template([conversation], tokenize=True, return_dict=True, **kwargs)[
                "input_ids"
            ][0]
        )
        for kwargs in ({"processor_kwargs": {"fps": 2}}, {"processor_kwargs": {"num_frames": 16}})
    ]
    assert lengths[0] < lengths[1]


def test_a_ticket_is_a_hash_of_frames_times_and_options(processing_for):
    processing, data = processing_for("qwen2_5_vl"), encoded("astronaut")
    clip = moving("astronaut")
    blocks = [
        {"video": data, "fps": 2},
        {"video": data, "fps": 4},
        {"video": data, "num_frames": 8},
        {"video": encoded("astronaut", fps=4), "fps": 2},
        {"video": data, "fps": 2, "size": {"shortest_edge": 784, "longest_edge": 28224}},
        {"video": clip},
        {"video": clip, "video_metadata": {"fps": 2.0}},
        {"video": clip, "video_metadata": {"fps": 3.0}},
        {"video": clip[::-1]},
    ]
    tickets = [tickets_of(processing, **block)[0] for block in blocks]
    assert len(set(tickets)) == len(blocks)
    assert tickets == [tickets_of(processing, **block)[0] for block in blocks]


def test_a_file_is_decoded_once(processing_for, tmp_path):
    processing, path = processing_for("qwen2_5_vl"), tmp_path / "clip.mp4"
    path.write_bytes(encoded("astronaut"))
    first = tickets_of(processing, video=path, fps=2)
    status = path.stat()
    # Of the same size and age: whoever opens it finds no video.
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert tickets_of(processing, video=str(path), fps=2) == first
    with pytest.raises(ImageError, match=r"Row 0, video 0: Cannot open the video"):
        tickets_of(processing, video=path, fps=4)
    os.utime(path)
    with pytest.raises(ImageError, match="Cannot open the video"):
        tickets_of(processing, video=path, fps=2)


def test_two_minutes_at_two_frames_a_second_stay_within_the_memory_of_the_store(processing_for):
    # 240 frames of 28 kB; the store holds 1 MiB, the rest is on disk.
    processing = processing_for("qwen2_5_vl", memory_bytes=1 << 20)
    data = encoded("retina", frames=480, fps=4, size=SIZE)
    video = stored(processing, video=data, fps=2)
    frame_bytes = 3 * SIZE[0] * SIZE[1]
    assert len(video.frames) == 240
    assert video.metadata["duration"] == 120.0
    assert len(processing.image_store) * frame_bytes <= (1 << 20) + frame_bytes
    rows = processing(
        images=[[{"video": data, "fps": 2}]] * 8, text=[processing.state.videos.placeholder] * 8
    )
    assert rows["pixel_values"].nbytes == 8 * 15
    assert len(processing.image_store) * frame_bytes <= (1 << 20) + frame_bytes
    # Frames come back from the disk as they were.
    assert np.array_equal(pixels(processing, video)[0], pixels(processing, video)[0])
    assert len(set(video.frames)) == 240


def test_a_kept_video_is_there_for_another_process(processing_for, tmp_path):
    processing = processing_for("qwen2_5_vl")
    message = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "What moves?"}]}]
    row = processing.encode_prompt(message, videos=[{"video": encoded("cat"), "fps": 2}], answer="it")
    _, tickets = processing.codec.read(row["input_ids"], lambda ticket: processing.processed(ticket).tokens)
    other = ImageStore(tmp_path / "images")
    assert other.row(tickets[0]).columns == {"answer": "it"}
    assert other.row(tickets[0]).prompt[0]["content"][0] == {"type": "video"}
    again, video = other.get(tickets[0]).image, processing.image_store.get(tickets[0]).image
    assert again == video
    assert [other.frame(frame).tobytes() for frame in again.frames] == [
        processing.image_store.frame(frame).tobytes() for frame in video.frames
    ]


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_frames_are_upright(turn, processing_for):
    # The matrix in a track's header says how players turn it, in 16.16 fixed point.
    matrices = {
        0: [1, 0, 0, 1],
        90: [0, 1, -1, 0],
        180: [-1, 0, 0, -1],
        270: [0, -1, 1, 0],
    }
    data = bytearray(encoded("astronaut", 8))
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = [value << 16 for value in matrices[turn]]
    for place, value in ((0, a), (4, b), (12, c), (16, d)):
        data[at + place : at + place + 4] = value.to_bytes(4, "big", signed=True)
    processing = processing_for("qwen2_5_vl")
    video = stored(processing, video=bytes(data), num_frames=4)
    expected = Image.fromarray(moving("astronaut", 8, step=4)[0]).rotate(-turn, expand=True)
    found = processing.image_store.frame(video.frames[0])
    assert found.size == expected.size
    assert np.abs(np.asarray(found, dtype=float) - np.asarray(expected, dtype=float)).mean() < 12


def test_what_is_no_video_is_refused_with_row_and_place(processing_for, tmp_path):
    processing = processing_for("qwen2_5_vl")
    picture = io.BytesIO()
    photo("cat", (32, 32)).save(picture, "PNG")
    cut = encoded("cat")[: len(encoded("cat")) // 2]
    refused = {
        "No such file": {"video": str(tmp_path / "none.mp4")},
        "Cannot open": {"video": b"no video at all"},
        "Got a video with \\['start'\\]": {"video": encoded("cat"), "start": 3},
        "cannot sample": {"video": encoded("cat"), "num_frames": 800},
        "without frames": {"video": []},
        "video array of shape": {"video": np.zeros((4, 4), dtype=np.uint8)},
        "frame 1:": {"video": [photo("cat", (32, 32)), "nowhere.png"]},
        "Expected one size": {"video": [photo("cat", (32, 32)), photo("cat", (32, 34))]},
        "video_metadata for a video file": {"video": encoded("cat"), "video_metadata": {"fps": 2.0}},
        "video_metadata with \\['rate'\\]": {"video": moving("cat"), "video_metadata": {"rate": 2.0}},
        "(Cannot open|can be decoded)": {"video": cut, "fps": 2},
        "frames that is not sampled": {"video": np.zeros((1500, 8, 8, 3), dtype=np.uint8)},
    }
    for message, block in refused.items():
        with pytest.raises(ImageError, match=rf"(?s)Row 0, video 0: .*{message}"):
            tickets_of(processing, **block)


@pytest.mark.parametrize("way", ["column", "blocks", "text"])
def test_lengths_of_prompts_count_videos(way, processing_for):
    from datasets import Dataset

    from hf_vlm_rl.data import prompt_lengths

    processing, data = processing_for("qwen3_vl"), encoded("cat")
    video = {"video": data, "fps": 2.0}
    question = {"type": "text", "text": "What moves?"}
    rows = {
        "column": {"prompt": [{"role": "user", "content": "What moves?"}], "images": [video]},
        "blocks": {"prompt": [{"role": "user", "content": [{"type": "video", **video}, question]}]},
        "text": {"prompt": f"{processing.state.videos.placeholder} What?", "images": [video]},
    }
    row = rows[way]
    lengths = prompt_lengths(Dataset.from_list([row, row]), processing)
    if way == "text":
        batch = processing(text=[row["prompt"]], images=[row["images"]])
    else:
        batch = processing.apply_chat_template(
            [rows["blocks"]["prompt"]], tokenize=True, return_dict=True, add_generation_prompt=True
        )
    assert list(lengths) == [len(batch["input_ids"][0])] * 2


def test_a_file_whose_frames_were_swept_from_the_disk_is_decoded_again(processing_for, tmp_path):
    processing = processing_for("qwen2_5_vl", memory_bytes=1)
    video = stored(processing, video=encoded("cat"), fps=2)
    for path in (tmp_path / "images" / "spilled").rglob("*.png"):
        path.unlink()
    assert not processing.image_store.holds(video)
    assert stored(processing, video=encoded("cat"), fps=2) == video
    assert processing.image_store.holds(video)
    assert len(pixels(processing, video)) == 6


def test_a_video_at_an_address_is_fetched_again(processing_for, monkeypatch):
    """What an address answers may change; the same answer has the same ticket."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    answers = [encoded("astronaut"), encoded("astronaut"), encoded("coffee")]

    class Changing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers.pop(0))

        def log_message(self, *_):
            pass

    processing = processing_for("qwen2_5_vl")
    with ThreadingHTTPServer(("127.0.0.1", 0), Changing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/clip.mp4"
        first, same, other = (tickets_of(processing, video=address, num_frames=4) for _ in range(3))
        server.shutdown()
    assert first == same != other
