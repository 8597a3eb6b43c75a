"""Write the table of docs/rewards.md from the docstrings of `hf_vlm_rl.rewards`.

Run `make docs`. A test fails when the table is not what this script writes.
"""

import inspect
import re
from pathlib import Path

from hf_vlm_rl import rewards

PAGE = Path(__file__).parent / "rewards.md"
START, END = "<!-- written by make docs -->\n", "<!-- end -->\n"
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


def page() -> str:
    """The text of docs/rewards.md, with the table of today."""
    text = PAGE.read_text()
    before, rest = text.split(START)
    return before + START + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
