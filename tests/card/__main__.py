"""`python -m tests.card FAMILY ...`: waits of the host and kernels of a decoding step, as a table."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from .driver import insert_card  # before transformers

counts = insert_card()

import argparse  # noqa: E402
import json  # noqa: E402

import torch  # noqa: E402

from .measure import measure  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.card", description=__doc__)
    parser.add_argument("families", nargs="+", metavar="FAMILY", help="config.model_type of a tiny model")
    parser.add_argument("--json", action="store_true", help="everything that was measured, for tests")
    parser.add_argument("--lines", action="store_true", help="where the policy waits")
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured = {}
    for family in given.families:
        measured[family] = measure(counts, family)
    if given.json:
        print(json.dumps(measured))
        return
    phases = list(max((numbers["waits"] for numbers in measured.values()), key=len))
    print("| family |", " | ".join([*phases, "kernels of a decoding step"]), "|")
    print("|---" * (len(phases) + 2) + "|")
    for family, numbers in measured.items():
        waits = [numbers["waits"].get(phase) for phase in phases]
        cells = ["-" if of is None else f"{of['stock']} / {of['policy']}" for of in waits]
        cells.append(" / ".join(f"{numbers['kernels'][side]:.0f}" for side in numbers["kernels"]))
        print(f"| {family} |", " | ".join(cells), "|")
    for family, numbers in measured.items() if given.lines else ():
        print(family, numbers["differ"], numbers["greedy"], numbers["not_shared"])
        for phase, lines in numbers["places"].items():
            print(f"\n{family}, {phase}:", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
