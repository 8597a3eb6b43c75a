"""`hf-vlm-rl try`: questions to an adapter and its base, side by side in a browser."""

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from .._install import pip_install
from .arguments import PORTS, add_device, add_dtype, at_least, device_name


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try`."""
    parser.add_argument("model", metavar="adapter", help="Hub id or directory of an adapter")
    parser.add_argument("--base-model", help="Hub id or directory of the base, if it has moved")
    parser.add_argument("--base-revision", help="commit, tag or branch of the base")
    parser.add_argument(
        "--max-new-tokens", type=at_least(1), default=256, help="longest answer (default: 256)"
    )
    add_dtype(parser)
    add_device(parser)
    parser.add_argument("--port", type=at_least(1, PORTS), default=7860, help="of the page (default: 7860)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser of this machine")


def run(options: argparse.Namespace) -> None:
    """Ask an adapter and its base about images, in a page of this machine.

    Both answer the same question greedily; boxes that they write are drawn. Only this machine can open the
    page. Needs the extra `ui`.
    """
    if importlib.util.find_spec("gradio") is None:
        raise ImportError(f"The page needs gradio: {pip_install('ui')}")
    from peft import PeftModel

    from ..loading.auto import AutoVLMPolicy

    model = AutoVLMPolicy.from_pretrained(
        options.model,
        base_model=options.base_model,
        base_revision=options.base_revision,
        dtype=options.dtype,
        device_map=device_name(options.device),
    )
    if not isinstance(model, PeftModel):
        raise ValueError(
            f"Got the model {options.model!r}, which is no adapter. Expected the folder or Hub id of an "
            "adapter; its base is found by itself."
        )
    page = question_page(model, options.model, max_new_tokens=options.max_new_tokens, do_sample=False)
    serve(page, server_port=options.port, inbrowser=options.open)


def serve(page: Any, **launch_options: Any) -> str:
    """Serve a `gradio.Blocks` to this machine alone and give its address; it loads nothing from others.

    The options are for its `launch`, which waits until the page is closed.
    """
    import gradio

    # Gradio's own fonts come from another machine, and its orange is too pale for white letters.
    theme = gradio.themes.Default(
        primary_hue="indigo", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    private = {"server_name": "127.0.0.1", "share": False, "ssr_mode": False, "footer_links": []}
    return page.launch(theme=theme, **private, **launch_options)[1]


def question_page(model: Any, name: str, **generation_kwargs: Any) -> Any:
    """The `gradio.Blocks` that asks for an image and a question, and shows what base and adapter answer."""
    import gradio

    from ..errors import ImageError
    from ..evaluation.side_by_side import side_by_side
    from ..processing.images.read import load_rgb

    def answer(path: str | None, question: str) -> list:
        try:
            image = None if path is None else load_rgb(Path(path))
            answers = side_by_side(model, question, image, **generation_kwargs)
        except (ImageError, ValueError) as error:
            raise gradio.Error(str(error), print_exception=False) from error
        shown = []
        for each in answers:
            boxes = [(box, label or "box") for box, label in each.boxes]
            shown += [each.text, gradio.update(value=(image, boxes) if boxes else None, visible=bool(boxes))]
        return shown

    with gradio.Blocks(title=f"{name} and its base", analytics_enabled=False) as page:
        gradio.Markdown(f"# An adapter and its base\n\n`{name}`")
        with gradio.Row():
            image = gradio.Image(sources=["upload", "clipboard"], label="Image", height=320)
            # Gradio would open it, with all formats of Pillow, and write one that is not RGB anew.
            image.preprocess = _uploaded
            with gradio.Column():
                question = gradio.Textbox(label="Question", lines=3)
                button = gradio.Button("Ask", variant="primary")
        outputs = []
        with gradio.Row():
            for side in ("Base", "Adapter"):
                with gradio.Column():
                    outputs.append(gradio.Textbox(label=side, lines=4, interactive=False))
                    outputs.append(gradio.AnnotatedImage(label=f"{side}: boxes", visible=False))
        for event in (button.click, question.submit):
            event(answer, [image, question], outputs)
    return page


def _uploaded(payload: Any) -> str | None:
    """The path of an image, which gradio has checked to be inside its own folder of uploads."""
    return None if payload is None else payload.path or ""
