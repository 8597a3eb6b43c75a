"""Rows of a dataset as one HTML file that needs nothing else; whatever a file says is text there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..errors import ImageError
from ..processing.images.read import load_rgb
from ..processing.images.reference import is_url
from ..processing.images.thumbnail import thumbnail

MOST = 200  # rows
LONGEST = 600  # characters of a text
_ENVIRONMENT = Environment(
    loader=PackageLoader("hf_vlm_rl.data", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@dataclass(frozen=True)
class ShownRow:
    """A row for people to look at: its place, columns (none if it cannot be read), findings and tokens."""

    place: str
    columns: Mapping[str, Any]
    findings: tuple[str, ...]
    tokens: int | None

    @property
    def pictures(self) -> list[str]:
        """Small copies of the images that can be read; those at http(s) addresses are not fetched."""
        pictures = []
        for image in self.columns.get("images", ()):
            try:
                if image["bytes"] is not None or not is_url(image["path"]):
                    pictures.append(thumbnail(load_rgb(image)))
            except ImageError:
                continue  # which a finding says
        return pictures

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Names and texts of all columns but the images."""
        return [(name, _text(value)) for name, value in self.columns.items() if name != "images"]


def save_page(file: IO[str], rows: Sequence[ShownRow], summary: Sequence[str]) -> None:
    """Write rows as a grid below the last lines of a summary. The page runs no script and loads nothing."""
    page = _ENVIRONMENT.get_template("check_page.html.jinja").render(rows=rows, summary=summary[-3:])
    file.write(page.encode(errors="backslashreplace").decode())


def _text(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "role" in value[0]:
        value = "\n".join(
            f"{turn['role']}: {''.join(block['text'] or '<image>' for block in turn['content'])}"
            for turn in value
        )
    text = str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."
