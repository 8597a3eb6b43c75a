"""Video files that somebody else made: playlists, lies in headers, damage."""

import random
import socket

import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.videos.clip import opened
from hf_vlm_rl.processing.videos.request import as_video
from tests.videos import encoded

pytest.importorskip("av", reason="the extra `video` is not installed")

CONTAINERS = {"mp4": "libx264", "matroska": "mpeg4", "avi": "mpeg4", "webm": "libvpx", "mpegts": "mpeg2video"}


def sizes(source):
    with opened(as_video(source)) as clip:
        last = clip.metadata["total_num_frames"] - 1
        return [frame.size for frame in clip.frames(sorted({0, last // 2, last}))]


@pytest.fixture
def secret(tmp_path):
    """A user's own video, in a container that playlists are made of."""
    path = tmp_path / "secret.ts"
    path.write_bytes(encoded("cat", codec="mpeg2video", container="mpegts"))
    assert len(sizes(path)) == 3
    return path


@pytest.mark.parametrize("form", ["path", "bytes"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("clip.mp4", "ffconcat version 1.0\nfile secret.ts\n"),
        ("clip.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{secret}\n#EXT-X-ENDLIST\n"),
    ],
    ids=["concat", "hls"],
)
def test_a_playlist_does_not_open_what_it_names(tmp_path, secret, name, text, form):
    (tmp_path / name).write_text(text.format(secret=secret))
    with pytest.raises(ImageError, match="Cannot open"):
        sizes(tmp_path / name if form == "path" else (tmp_path / name).read_bytes())


def test_a_description_of_a_stream_opens_no_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        text = f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\n"
    with pytest.raises(ImageError, match="Cannot open the bytes of a video: Invalid argument"):
        sizes(f"{text}a=rtpmap:96 H264/90000\n".encode())


def test_frames_larger_than_the_limit_are_refused(monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_MAX_IMAGE_PIXELS", "100")
    with pytest.raises(ImageError, match="frames of 112 x 84 pixels, more than 100"):
        sizes(encoded("cat"))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, or with other bytes in its header or anywhere, or with a part that is gone or comes twice."""
    changed = bytearray(data)
    at, length = rng.randrange(len(data)), rng.randrange(1, 400)
    match rng.choice(["cut", "header", "anywhere", "gone", "twice"]):
        case "cut":
            del changed[at:]
        case "gone":
            del changed[at : at + length]
        case "twice":
            changed[at:at] = changed[at : at + length]
        case part:
            end = 600 if part == "header" else len(data)
            for _ in range(rng.randrange(1, 12)):
                changed[rng.randrange(end)] = rng.choice([0, 127, 128, 255, rng.randrange(256)])
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_damaged_file_is_read_or_refused(container):
    data = encoded("cat", codec=CONTAINERS[container], container=container)
    rng, refused = random.Random(container), 0
    for _ in range(400):
        try:
            sizes(damaged(data, rng))
        except ImageError:
            refused += 1
    assert 0 < refused < 400
