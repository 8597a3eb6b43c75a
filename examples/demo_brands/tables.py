"""What the runs of all seeds measured, as Markdown."""

from collections.abc import Sequence

Row = Sequence[str]
MAIN = ("seed", "warm start", "after GRPO", "gain in points", "McNemar's p", "minutes")
CONTROLS = ("seed", "instead of GRPO", "warm start", "after", "gain in points", "McNemar's p", "CPU minutes")


def main_table(runs: Sequence[dict]) -> str:
    """Accuracy before and after GRPO, one line for each seed.

    Args:
        runs: What `run` returned.
    """
    lines = []
    for run in runs:
        minutes = sum(stage["wall"] for stage in run["seconds"].values()) / 60
        lines.append([str(run["seed"]), *_change(run["held_out"]), f"{minutes:.1f}"])
    numbers = sorted({run["pictures"]["held_out"] for run in runs})
    return f"accuracy on {numbers[0]} held-out pictures [95 %]\n{_markdown(MAIN, lines)}"


def controls_table(controls: Sequence[dict]) -> str:
    """Accuracy before and after each control.

    Args:
        controls: What `run_control` returned.
    """
    lines = []
    for control in controls:
        minutes = control["seconds"]["training"]["processor"] / 60
        first = [str(control["seed"]), control["control"]]
        lines.append([*first, *_change(control["held_out"]), f"{minutes:.1f}"])
    return _markdown(CONTROLS, lines)


def _change(held_out: dict) -> Row:
    """Before, after, gain and p of what `change` returned."""
    before, after = (
        f"{each['value']:.1%} [{each['low']:.1%}, {each['high']:.1%}]"
        for each in (held_out["before"], held_out["after"])
    )
    gain = held_out["gain"]
    points = f"{100 * gain['value']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
    return before, after, points, f"{held_out['p_value']:.1g}"


def _markdown(head: Row, lines: Sequence[Row]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
