"""The sets of versions that are tested together: `constraints/*.txt`, which `pip install -c` takes."""

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

CONSTRAINTS = Path(__file__).parents[1] / "constraints"
# Packages with whose own requirements TRL's trainers cannot be imported when they are not met.
ASKING = ("hf-vlm-rl", "torchvision", "transformers", "trl", "vllm")


def nearest_set() -> Iterator[tuple[str, str]]:
    """Pairs that say which set comes nearest, what does not fit, and what command mends both."""
    sets = {
        path.stem: [Requirement(line) for line in path.read_text().splitlines() if not line.startswith("#")]
        for path in sorted(CONSTRAINTS.glob("*.txt"))
    }
    # Beside vLLM, only a set that has one says what fits.
    beside = {name for name, pins in sets.items() if any(pin.name == "vllm" for pin in pins)}
    missing = {name: _others(sets[name]) for name in sets if (name in beside) == bool(installed("vllm"))}
    nearest = min(missing, key=lambda name: len(missing[name]))
    others = missing[nearest]
    yield "versions", nearest if not others else f"no tested set; {nearest} has {' '.join(map(str, others))}"
    mends = {each.name: str(each) for each in others}
    for package in filter(installed, ASKING):
        for each in _others(required(package)):
            needed = f"{each.name}{each.specifier}"
            yield "does not fit", f"{each.name} {installed(each.name)}; {package} needs {needed}"
            mends.setdefault(each.name, needed)
    if mends:
        yield "to have the set" if others else "to mend it", f"pip install {shlex.join(mends.values())}"


def required(package: str) -> list[Requirement]:
    """What an installed package needs, without its extras."""
    asked = [Requirement(line) for line in requires(package) or []]
    return [each for each in asked if not each.marker or each.marker.evaluate()]


def installed(package: str) -> str | None:
    """The version of a package, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _others(asked: list[Requirement]) -> list[Requirement]:
    """Those that the installed version does not fit, and those of which none is installed."""
    versions = [(each, installed(each.name)) for each in asked]
    return [each for each, has in versions if not has or not each.specifier.contains(has, prereleases=True)]
