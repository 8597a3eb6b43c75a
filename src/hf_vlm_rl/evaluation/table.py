"""A small table of text, as Markdown and on HTML pages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table: headings, lines with a cell for each of them, and a sentence below."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """The table in Markdown, whose cells hold any text."""
        lines = [self.columns, ("---",) * len(self.columns), *self.lines]
        rows = ["| " + " | ".join(map(cell, line)) + " |" for line in lines]
        return "\n".join([*rows, *(("", self.note) if self.note else ())])


def cell(text: str) -> str:
    """Text that stays inside its cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())
