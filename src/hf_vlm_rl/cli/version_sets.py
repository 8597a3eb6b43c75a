"""The sets of versions that are tested together: `constraints/*.txt`, which `pip install -c` takes."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

CONSTRAINTS = Path(__file__).parents[1] / "constraints"


def nearest_set() -> Iterator[tuple[str, str]]:
    """Pairs that say which set comes nearest, what does not fit, and what command installs the set."""
    sets = {path.stem: _others(_lines(path)) for path in sorted(CONSTRAINTS.glob("*.txt"))}
    nearest = min(sets, key=lambda name: len(sets[name]))
    others = sets[nearest]
    yield "versions", nearest if not others else f"no tested set; {nearest} has {' '.join(map(str, others))}"
    asked = [Requirement(line) for line in requires("hf-vlm-rl") or []]
    for requirement in _others([each for each in asked if not each.marker or each.marker.evaluate()]):
        yield "does not fit", f"{requirement.name} {_installed(requirement.name)}, needed: {requirement}"
    if others:
        yield "to have the set", f"pip install {' '.join(map(str, others))}"


def _lines(path: Path) -> list[Requirement]:
    return [Requirement(line) for line in path.read_text().splitlines() if not line.startswith("#")]


def _others(asked: list[Requirement]) -> list[Requirement]:
    """Those that the installed version, or that none is installed, does not fit."""
    return [
        each for each in asked if not each.specifier.contains(_installed(each.name) or "0", prereleases=True)
    ]


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
