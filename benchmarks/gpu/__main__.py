"""`python -m benchmarks.gpu`: what only a GPU can tell, in about nine minutes and without a network."""

import argparse
import sys
import time
from pathlib import Path

from .command import run_all
from .parts import PARTS
from .report import Part


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models: a test of the code, no figures")
    parser.add_argument("--seconds", type=float, default=540, help="for all parts together (default 540)")
    parser.add_argument("--out", default="outputs/gpu", help="folder of RESULTS.md (default outputs/gpu)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part is None:
        if given.device == "cuda" and not _has_card():
            parser.error("no CUDA device. Expected one; --device cpu --tiny runs the code, without figures")
        return min(run_all(given), 1)
    file = Path(given.out) / f"{given.part}.md"
    part = Part(file, given.device, given.tiny, time.monotonic() + given.seconds)
    PARTS[given.part].load()(part)
    return 0


def _has_card() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    sys.exit(main())
