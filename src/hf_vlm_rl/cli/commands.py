"""The `hf-vlm-rl` command: one table of subcommands."""

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import check, convert, demo, plan, push, trl
from . import eval as evaluation


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes:
        help: One line for `--help`.
        arguments: Adds its arguments to a parser.
        run: Does the work. Returns the exit status; None is 0.
    """

    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: Arguments without the program's name. Default: those of the process.

    Returns:
        The exit status.
    """
    given = build_parser().parse_args(argv)
    try:
        return COMMANDS[given.command].run(given) or 0
    except (ImportError, OSError, ValueError) as error:
        if given.command == "trl":
            raise
        # Messages of transformers about files on the Hub do not say of which model.
        model = getattr(given, "model", None) or getattr(given, "source", None)
        about = f"{given.command} {model}" if model else given.command
        print(f"hf-vlm-rl {about}: {error}", file=sys.stderr)  # noqa: T201
        return 1


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="hf-vlm-rl",
        description="Vision-language models as policies for TRL's stock trainers.",
        epilog="Exit status: 0 if it was done; 1 with a message if it was not; 2 for wrong arguments.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        description = inspect.cleandoc(command.run.__doc__)
        command.arguments(
            subparsers.add_parser(
                name,
                help=command.help,
                description=description,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    return parser


COMMANDS: dict[str, Command] = {
    "check": Command("is a model supported, and what does an image cost?", check.arguments, check.run),
    "convert": Command("InternVL's original format to transformers'", convert.arguments, convert.run),
    "demo": Command("a tiny model learns to read digits, on a CPU", demo.arguments, demo.run),
    "eval": Command("rewards of a model or adapter on a dataset", evaluation.arguments, evaluation.run),
    "plan": Command("the memory of a GRPO run, and settings that fit a GPU", plan.arguments, plan.run),
    "push": Command("an adapter and its card to the Hub", push.arguments, push.run),
    "trl": Command("a TRL script, with models loaded as policies", trl.arguments, trl.run),
}
