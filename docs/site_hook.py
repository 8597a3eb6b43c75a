"""Pages outside docs/, and links to files of the repository, for the documentation site.

Links are written so that they work where the repository is browsed: relative to the file they stand in.
The site has the repository's tree, with docs/ as its root: pages of other folders are added to it, and so
is every file that some page links to. Nothing has to know where the repository is hosted.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = "docs/"
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/RESULTS.md",
    "examples/README.md",
    "model_cards/README.md",
    "model_cards/dpo.md",
    "model_cards/grpo.md",
    "model_cards/ppo.md",
)
HOME = {"README.md": "index.md"}  # the site has a first page of its own
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")  # without a scheme


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of other folders, and the files that pages link to."""
    for name in PAGES:
        files.append(_outside(name, config))
    for page in list(files.documentation_pages()):
        for name in _targets(page):
            uri = site_uri(name)
            if files.get_file_from_path(uri) is None and (ROOT / name).is_file():
                files.append(_outside(name, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links that leave docs/ those of the site's tree."""
    folder = posixpath.dirname(_repository_path(page.file))
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(match: re.Match) -> str:
        name = posixpath.normpath(posixpath.join(folder, match[1]))
        if not (ROOT / name).is_file():
            return match[0]  # MkDocs says so
        return posixpath.relpath(site_uri(name), here or ".")

    return LINK.sub(rewritten, markdown)


def site_uri(name: str) -> str:
    """Where a file of the repository is in the site's sources, which have docs/ as their root."""
    return HOME.get(name, name.removeprefix(DOCS))


def _targets(page: File) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    folder = posixpath.dirname(_repository_path(page))
    for match in LINK.finditer(page.content_string):
        yield posixpath.normpath(posixpath.join(folder, match[1]))


def _repository_path(page: File) -> str:
    return Path(page.abs_src_path).relative_to(ROOT).as_posix()


def _outside(name: str, config: MkDocsConfig) -> File:
    return File.generated(config, site_uri(name), abs_src_path=str(ROOT / name))
