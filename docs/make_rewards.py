"""Write the tables of docs/rewards.md: docstrings of `hf_vlm_rl.rewards`, and what cheap completions earn.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import inspect
import re
import statistics
from pathlib import Path
from typing import Any

from hf_vlm_rl import rewards

PAGE = Path(__file__).parent / "rewards.md"
START, END = "<!-- written by make docs -->\n", "<!-- end -->\n"
CHEAP_START, CHEAP_END = (
    "<!-- cheap completions, written by make docs -->\n",
    "<!-- end of cheap completions -->\n",
)
HEAD = "| reward | ready to use | what it gives | columns | range | malformed |\n|---|---|---|---|---|---|\n"


def fact(docstring: str, name: str) -> str:
    """The paragraph of a docstring that begins with `name:`, in one line, fit for a table."""
    match = re.search(rf"^{name}: (.*?)(?=^\S+:|\n\n|\Z)", docstring, flags=re.DOTALL | re.MULTILINE)
    if match is None:
        raise ValueError(f"no {name!r} in {docstring!r}")
    return " ".join(match[1].split()).replace("|", "\\|")


def table() -> str:
    """One line per reward."""
    ready = {type(getattr(rewards, name)): name for name in rewards.__all__ if name.endswith("_reward")}
    lines = []
    for name in (name for name in rewards.__all__ if name.endswith("Reward")):
        reward = getattr(rewards, name)
        if inspect.isabstract(reward):
            continue
        docstring = inspect.getdoc(reward)
        what = docstring.partition("\n")[0].replace("|", "\\|")
        call = "`compose(...)`" if name == "ComposedReward" else f"`{name}`"
        facts = " | ".join(fact(docstring, key) for key in ("Columns", "Range", "Malformed"))
        lines.append(f"| {call} | {f'`{ready[reward]}`' if reward in ready else '-'} | {what} | {facts} |\n")
    return HEAD + "".join(lines)


def cheap() -> list[tuple[str, Any, dict[str, list], dict[str, str]]]:
    """Of each reward: its name, itself, the rows, and by name completions that know nothing of a row."""
    letters, truths, counts = list("ABCD"), ["yes", "no"] * 2, [1, 2, 3, 4]
    texts = ["STOP", "EXIT", "OPEN 24 HOURS", "NO PARKING"]
    boxes = [[10, 20, 300, 200], [0, 0, 640, 480], [100, 100, 200, 400], [320, 240, 640, 480]]
    whole, quarters = (
        "[0, 0, 640, 480]",
        "[[0, 0, 320, 240], [320, 0, 640, 240], [0, 240, 320, 480], [320, 240, 640, 480]]",
    )
    brands = ["Gap", "Nike", "H&M", "Levi's"]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    required = {**schema, "required": ["n"]}
    ids = {"completion_ids": [[0] * 8] * 4}
    thought = {"a copied thought": "<think>Let me look at the picture.</think><answer>a</answer>"}
    every_text = {"the commonest letters": "E O", "all answers": " ".join(texts), "one answer": texts[0]}
    text = {"answer": texts}
    one_number = {
        "the numbers from 1 to 4": "1, 2, 3, 4",
        "always 2": "2",
        "a range": "1 to 4",
        "a denied one": "not 2",
    }
    return [
        ("exact_match_reward", rewards.exact_match_reward, text, every_text),
        ("normalized_match_reward", rewards.normalized_match_reward, text, every_text),
        ("ocr_reward", rewards.ocr_reward, text, every_text),
        ("OCRReward(threshold=0.5)", rewards.OCRReward(threshold=0.5), text, every_text),
        (
            "ChoiceReward(brands)",
            rewards.ChoiceReward(brands),
            {"answer": brands},
            {"all choices": ", ".join(brands), "one choice": "Gap", "a denied one": "not Gap"},
        ),
        (
            "yes_no_reward",
            rewards.yes_no_reward,
            {"answer": truths},
            {"always yes": "yes", "both": "yes or no", "no as part of a phrase": "There is no doubt."},
        ),
        (
            "multiple_choice_reward",
            rewards.multiple_choice_reward,
            {"answer": letters},
            {"always B": "B", "all letters": "A B C D", "a denied one": "B (not A)"},
        ),
        ("numeric_reward", rewards.numeric_reward, {"answer": counts}, one_number),
        (
            "NumericReward(rel_tol=0.05)",
            rewards.NumericReward(rel_tol=0.05),
            {"answer": [1980, 1995, 2010, 2020]},
            {"a typical year": "2000"},
        ),
        ("count_reward", rewards.count_reward, {"answer": counts}, one_number),
        ("CountReward(partial=True)", rewards.CountReward(partial=True), {"answer": counts}, one_number),
        (
            "math_reward",
            rewards.math_reward,
            {"answer": ["1", "2", "x+1", "\\frac{1}{2}"]},
            {"several answers": "1 or 2", "a set": "{1, 2}", "a variable": "x", "always 1": "1"},
        ),
        (
            "JSONSchemaReward, nothing required",
            rewards.JSONSchemaReward(schema),
            {},
            {"an empty object": "{}"},
        ),
        (
            "JSONSchemaReward, n required",
            rewards.JSONSchemaReward(required, parsed=0.2),
            {},
            {"an empty object": "{}", "any integer": '{"n": 0}'},
        ),
        (
            "format_reward",
            rewards.format_reward,
            {},
            {**thought, "a letter in each": "<think>a</think><answer>a</answer>"},
        ),
        (
            "FormatReward(partial=True)",
            rewards.FormatReward(partial=True),
            {},
            {"an answer alone": "<answer>a</answer>"},
        ),
        (
            "LengthReward(4, 16)",
            rewards.LengthReward(4, 16),
            ids,
            {"eight tokens of anything": "a a a a a a a a"},
        ),
        (
            "CosineLengthReward(numeric_reward, 8)",
            rewards.CosineLengthReward(rewards.numeric_reward, 8),
            {"answer": counts, **ids},
            {"a wrong answer of full length": "9", "always 2": "2"},
        ),
        ("repetition_reward", rewards.repetition_reward, {}, {"nothing": "", "the same word": "a " * 20}),
        ("iou_reward", rewards.iou_reward, {"box": boxes}, {"the whole image": whole, "a tiling": quarters}),
        (
            "IoUReward(threshold=0.5)",
            rewards.IoUReward(threshold=0.5),
            {"box": boxes},
            {"the whole image": whole, "a tiling": quarters},
        ),
        (
            "detection_reward",
            rewards.detection_reward,
            {"boxes": [[boxes[0], boxes[2]], [boxes[1]], [], [boxes[3], boxes[0]]]},
            {"the whole image": whole, "a tiling": quarters, "nothing": "[]"},
        ),
        (
            "compose(numeric_reward, format_reward)",
            rewards.compose(rewards.numeric_reward, rewards.format_reward),
            {"answer": counts},
            {"a copied thought, always 2": "<think>I count them.</think><answer>2</answer>", **thought},
        ),
    ]


def earnings() -> str:
    """One line for each reward and cheap completion, with the mean reward over its four rows."""
    lines = ["| reward | cheap completion | mean reward |\n|---|---|---|\n"]
    for name, reward, columns, completions in cheap():
        for what, completion in completions.items():
            mean = statistics.fmean(reward(completions=[completion] * 4, **columns))
            shown = (completion[:60] + "..." if len(completion) > 60 else completion).strip()
            lines.append(f"| `{name}` | {what}" + (f": `{shown}`" if shown else "") + f" | {mean:.2f} |\n")
    return "".join(lines)


def between(text: str, start: str, end: str, content: str) -> str:
    """The text with other content between two marks."""
    before, rest = text.split(start)
    return before + start + content + end + rest.split(end)[1]


def page() -> str:
    """The text of docs/rewards.md, with the tables of today."""
    text = between(PAGE.read_text(), START, END, table())
    return between(text, CHEAP_START, CHEAP_END, earnings())


if __name__ == "__main__":
    PAGE.write_text(page())
