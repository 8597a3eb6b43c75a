"""Chat templates in the style of each family; their text is in the folder `jinja/`.

All take a string or a list of `image`, `video` and `text` blocks as content, an optional system turn first,
and `add_generation_prompt`. A rendered conversation starts with the rendered prompt of its last answer.
"""

from importlib import resources

_FOLDER = resources.files(__package__).joinpath("jinja")


def _template(image: str, video: str, *names: str) -> str:
    """The files `names` in a row, behind a macro that writes `image` and `video` for images and videos."""
    blocks, *others = (_FOLDER.joinpath(f"{name}.jinja").read_text().strip() for name in ("blocks", *names))
    return "".join([blocks.replace("IMAGE", repr(image)).replace("VIDEO", repr(video)), *others])


def chatml(image: str, video: str = "", *before: str) -> str:
    """A ChatML template, behind the files `before`, that writes `image` and `video` for images and videos."""
    return _template(image, video, *before, "chatml")


_QWEN = ("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")

INTERNVL = chatml("<IMG_CONTEXT>\n", "<video>\n")
QWEN2_VL = chatml(*_QWEN, "system")
QWEN3_VL = chatml(*_QWEN)
ONEVISION = chatml("<image>\n", "<video>\n")
GEMMA3 = _template("<start_of_image>", "", "system_in_user", "gemma3")
LLAVA = _template("<image>\n", "", "llava")
LLAVA_NEXT = _template("<image>\n", "", "system_in_user", "llava_next")
MISTRAL3 = _template("[IMG]", "", "mistral3")
IDEFICS = _template("<image>", "<video>", "idefics")
PALIGEMMA = _template("", "", "paligemma")
