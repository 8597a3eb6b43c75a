"""Build the documentation site: `python docs/make_site.py`, or `make site`.

Links are written so that they work where the repository is browsed: relative to the file they stand in.
The site has the repository's tree, with docs/ as its root. Pages of other folders that the navigation names
are copied into that tree, and so is every file that some page links to; Zensical builds what was gathered.
Nothing has to know where the repository is hosted; where GitHub builds the site, its variables say so, and
the navigation has a link to it. The site's name carries the version.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import make_messages
import yaml

ROOT = Path(__file__).parent.parent
CONFIGURATION = "mkdocs.yml"
DOCS = "docs/"
HOME = {"README.md": "index.md"}  # the site has a first page of its own
GENERATED = {"messages.md": make_messages.page}  # pages that only the site has
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")  # without a scheme


def build(site: Path) -> None:
    """Build the site strictly: a link or an anchor that leads nowhere is an error.

    Args:
        site: Folder to write; one that exists is replaced.

    Raises:
        SystemExit: With the builder's exit status, if it found something wrong.
    """
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / CONFIGURATION).write_text(yaml.safe_dump(configuration(), sort_keys=False), encoding="utf-8")
        (work / "src").symlink_to(ROOT / "src")
        gather(work / "docs")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=work, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(work / "site", site)


def configuration() -> dict:
    """mkdocs.yml, with the version in the site's name and the repository in the navigation."""
    read = yaml.safe_load((ROOT / CONFIGURATION).read_text(encoding="utf-8"))
    initial = (ROOT / "src" / "hf_vlm_rl" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"$', initial, re.MULTILINE)
    read["site_name"] += f" {version}"
    if "GITHUB_REPOSITORY" in os.environ:
        address = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
        read["nav"].insert(1, {"Repository": address})
    return read


def gather(tree: Path) -> None:
    """Write the pages, with links of the site's tree, and the files that they link to.

    Args:
        tree: Folder to write.
    """
    waiting = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / DOCS).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    waiting += [name for name in _in_navigation() if not (ROOT / DOCS / name).is_file()]
    written = {*HOME, *GENERATED}
    while waiting:
        name = waiting.pop()
        if name in written:
            continue
        written.add(name)
        copy = tree / site_path(name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            copy.write_text(relinked(text, name), encoding="utf-8")
            waiting += _targets(text, name)
        else:
            shutil.copy(ROOT / name, copy)
    for name, page in GENERATED.items():
        (tree / name).write_text(page(), encoding="utf-8")


def relinked(text: str, name: str) -> str:
    """The text of a page with its links as the site's tree has them; others are left to the builder's check.

    Args:
        text: In Markdown.
        name: Path of the page in the repository.
    """
    folder, here = posixpath.dirname(name), posixpath.dirname(site_path(name))

    def link(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        return posixpath.relpath(site_path(target), here or ".") if (ROOT / target).is_file() else match[0]

    return LINK.sub(link, text)


def site_path(name: str) -> str:
    """Where a file of the repository is in the site's tree, which has docs/ as its root."""
    return HOME.get(name, name.removeprefix(DOCS))


def _targets(text: str, name: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for match in LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))
        if (ROOT / target).is_file():
            yield target


def _in_navigation() -> Iterator[str]:
    """The pages that the navigation names."""
    waiting = list(yaml.safe_load((ROOT / CONFIGURATION).read_text(encoding="utf-8"))["nav"])
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, str):
            yield entry
        else:
            waiting += entry.values() if isinstance(entry, dict) else entry


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="folder to write (default: site)")
    build(parser.parse_args().site)
