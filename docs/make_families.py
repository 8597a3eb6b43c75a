"""Write docs/families.md, the support matrix: every class of transformers, and what is known of it.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import html
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "families.md"

HEAD = """\
# Families

For people who ask whether their model is supported, and what works with it. `make docs` writes this page
from the classes of transformers, what is derived of each, and the tests.

A family is a `config.model_type` of transformers. What the library needs to know of one is derived from the
model and its native processor when a checkpoint is loaded; a *written* row adds what they do not tell.
Classes of this table are compared with stock on tiny random models, saved and loaded: logits, gradients,
rollouts, batches, tickets inside ids. In `make test-slow`, stock GRPO, DPO, SFT and PPO train the written
ones on every TRL lane and all of them on TRL 1.12; `make test` takes one of each kind.

A family without a written row is compared with its stock model when a checkpoint is loaded for the first
time; `hf-vlm-rl check MODEL --weights` says by how much it is off.

"shares prompts" says whether rows of one prompt are [packed](performance.md#how-rows-share) in training, or
why they are not. "boxes" is how the makers' models write one,
here the left half of an image of 640 x 480 pixels; "-" where they document none. See
[Rewards](rewards.md). "videos": whether it takes [them](videos.md), in these tests.

| `model_type` | row | shares prompts | videos | image options | boxes | what is special |
|---|---|---|---|---|---|---|
"""

NEW = """
## Classes that are newer than the tests

They load, and as every class without a written row they are compared with stock when a checkpoint is loaded
for the first time. No test of this package has trained one.

| `model_type` | since transformers |
|---|---|
"""

# Classes of transformers' two mappings that no tiny checkpoint here covers yet, and their first release.
UNTESTED = {"apertus1p5": "5.24", "hy_v4_vl": "5.24", "inkling2_loop": "5.24"}

# The release before which a class of this page is not in transformers.
SINCE = {**UNTESTED, "omniasr": "5.24"}

REST = """
## Classes that are no policies

| `model_type` | why |
|---|---|
"""

# Classes of transformers' two mappings that get a clear error, and why.
UNSUPPORTED = {
    **dict.fromkeys(
        ("florence2", "pix2struct", "pp_formulanet", "t5gemma2", "udop", "vision-encoder-decoder"),
        "encoder-decoder",
    ),
    **dict.fromkeys(("blip", "git"), "captions only: no chat, and images go into every layer or none"),
    **dict.fromkeys(("instructblip", "instructblipvideo"), "image features depend on the question"),
    **dict.fromkeys(
        ("idefics", "evolla"), "cross-attention of its own in every block, without get_image_features"
    ),
    **dict.fromkeys(("kosmos-2", "kosmos-2.5"), "images are put into the ids' embeddings by a position mask"),
    "diffusion_gemma": "diffusion: it writes blocks, not tokens",
    "pi0": "robot actions",
    "mistral4": "a language model without vision",
    "fuyu": "patches go into the embeddings without a vision tower; its processor pairs them with ids itself",
    "got_ocr2": "OCR without a chat template, one page or several stitched",
    **dict.fromkeys(
        ("qwen2_5_omni", "qwen3_omni_moe"),
        "speaker and thinker in one, without a forward: load its `..._thinker`",
    ),
    **dict.fromkeys(
        (
            "fun_asr_nano",
            "glmasr",
            "granite_speech",
            "granite_speech_plus",
            "kyutai_speech_to_text",
            "moss_transcribe_diarize",
            "nemo_speechlm",
            "omniasr",
            "qwen2_audio",
            "qwen3_asr",
            "vibevoice_asr",
            "voxtral",
            "voxtral_realtime",
        ),
        "sound without images",
    ),
}

# transformers 5.23 renames tensors of these when PEFT loads an adapter, and finds no layer for them.
LOST_ADAPTERS = "PEFT does not find all tensors of its adapters again: merge before saving."

# What users of a class without a written row should know.
SPECIAL = {
    **dict.fromkeys(("deepseek_ocr2", "inkling2"), LOST_ADAPTERS),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), "Any resolution; 3-D positions."),
    **dict.fromkeys(("idefics3", "smolvlm"), "Tiles with row and column marks."),
    "internvl": "Dynamic tiles plus a thumbnail.",
    "qwen3_vl": "Any resolution; 3-D positions; features enter several decoder layers.",
    "gemma3": "Image tokens attend to each other in both directions.",
    "llava": "One fixed-size picture per image.",
    "llava_next": "Any-resolution tiles.",
    "llava_onevision": "Any-resolution tiles for a row's only image, one tile each for several.",
    "mistral3": "Any resolution; a break token after every row of patches.",
    "paligemma": "Prompt tokens attend in both directions; every row needs an image.",
    "cosmos3_edge": "Adjacent images need text between them.",
    "emu3": "Native inputs: images are padded to the largest of a batch.",
    "fast_vlm": "Native inputs: its tower normalises over the batch while it trains.",
    "gemma3n": "Native inputs where its tower normalises over the batch. Towers that train in place fail.",
    "hunyuan_vl": "In stock, a row's logits depend on the rows before it.",
    "kimi_k25": "Videos from transformers 5.24 on.",
    "llama4": "No backbone without a head: GRPO, DPO and SFT up to TRL 1.14, no PPO. "
    "Not on transformers 5.24.0.",
    "mistral_large4": f"In stock, left padding changes logits. {LOST_ADAPTERS}",
    "mllama": "Native inputs. No text-only row beside one with images; no PPO; no DPO before TRL 1.13.",
    "molmo2": "Rollouts in training mode work with tickets; in stock they fail.",
    "nemotron_h_omni": "No backbone without a head: GRPO and DPO up to TRL 1.14, no PPO.",
    "phi4_multimodal": "Native inputs. No PPO (nor has stock); GRPO up to TRL 1.12.",
    "paddleocr_vl": "Adjacent images need text between them.",
    "unlimited_ocr": f"Its window holds while sampling: log-probs differ after 128 tokens. {LOST_ADAPTERS}",
}


def boxes(family: Any) -> str:
    """How the family's models write a box that covers the left half of 640 x 480 pixels."""
    from hf_vlm_rl.families.box_coordinates import BoxCoordinates

    if family.boxes is None:
        return "-"
    text = BoxCoordinates(family.boxes).to_text([0, 0, 320, 480], (640, 480), "cat")
    # In a table, GitHub and the site disagree on how a bar inside backticks is escaped: entities it is.
    code = re.sub(r"[|_*\[\]]", lambda mark: f"&#{ord(mark[0])};", html.escape(text, quote=False))
    code = code.replace("&gt;", "&gt;<wbr>").removesuffix("<wbr>")  # a line may break after a tag
    return f"<code>{code}</code>" + (", pixels after the resize" if family.boxes.scale is None else "")


def _line_of(model_type: str) -> str:
    """The class's line on the page as it is: the installed transformers cannot run the class."""
    lines = PAGE.read_text().splitlines(keepends=True)
    return next(line for line in lines if line.startswith(f"| `{model_type}` |"))


def facts(model_type: str) -> tuple[Any, str]:
    """The whole family of a class, and whether its rows share prompts, or why not."""
    from hf_vlm_rl import AutoVLMPolicy
    from tests.tiny import recipe

    made = recipe(model_type)
    policy = AutoVLMPolicy.from_config(made.config, made.processor)
    reason = policy.base_model.sharing.refusal or policy.base_model.sharing.unpacked
    # How far a random model is off says nothing of others.
    return policy.family, "yes" if reason is None else f"no: {reason.partition(' by ')[0]}"


def page() -> str:
    """The text of docs/families.md."""
    sys.path.insert(0, str(ROOT))
    from hf_vlm_rl.families import FAMILIES
    from tests.conformance.cases import EXCEPTIONS
    from tests.conformance.every import CLAIMED, VIDEO_CLASSES, WITHOUT_ROUTER_LOSS
    from tests.tiny import WITHOUT_POLICY

    lines = []
    for model_type in [*FAMILIES, *sorted(set(CLAIMED) - set(FAMILIES))]:
        try:
            family, shares = facts(model_type)
        except ImportError:  # `compat.require_working_class`
            lines.append(_line_of(model_type))
            continue
        row = "written" if model_type in FAMILIES else "derived"
        options = ", ".join(f"`{option}`" for option in family.processor_options) or "-"
        special = SPECIAL.get(model_type, "")
        if model_type in WITHOUT_ROUTER_LOSS:
            special = f"TRL's `router_aux_loss_coef` must be 0, for stock too. {special}".rstrip()
        videos = "yes" if model_type in VIDEO_CLASSES else "-"
        cells = (f"`{model_type}`", row, shares, videos, options, boxes(family), special)
        lines.append(f"| {' | '.join(cells)} |\n")
    lines.append(NEW)
    lines += [f"| `{name}` | {release} |\n" for name, release in UNTESTED.items()]
    lines.append(REST)
    lines += [f"| `{name}` | {why} |\n" for name, why in sorted((UNSUPPORTED | WITHOUT_POLICY).items())]
    notes = ["\n## Where the contract does not hold\n\n"]
    for clause, reasons in EXCEPTIONS.items():
        notes += [f"- {clause}: `{family}` - {reason}.\n" for family, reason in reasons.items()]
    return HEAD + "".join(lines) + "".join(notes)


if __name__ == "__main__":
    PAGE.write_text(page())
