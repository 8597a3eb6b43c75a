"""The `hf-vlm-rl` command: one table of subcommands."""

import argparse
import importlib.util
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import check, demo, plan, push
from . import eval as evaluation
from .arguments import positive


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


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="Hub id or directory of a checkpoint in OpenGVLab's InternVL format")
    parser.add_argument("destination", help="directory to write; must not exist or be empty")
    parser.add_argument("--revision", help="branch, tag or commit of the Hub id")
    parser.add_argument(
        "--shard-gb", type=positive(float), default=5.0, help="largest weight file, in GB (default: 5)"
    )


def _convert(arguments: argparse.Namespace) -> None:
    """Write an InternVL checkpoint in OpenGVLab's format as one that plain transformers loads."""
    from ..loading.internvl_chat.convert import convert

    located = {} if arguments.revision is None else {"revision": arguments.revision}
    convert(arguments.source, arguments.destination, int(arguments.shard_gb * 1e9), **located)


def _trl_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", help="grpo, dpo, sft, ...: as for `trl`")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="that script's own arguments")


def _trl(arguments: argparse.Namespace) -> None:
    """Run TRL's own training script in this process, after hf_vlm_rl.register().

    For several processes: accelerate launch -m hf_vlm_rl.cli trl grpo ...
    """
    from ..loading.registration import register

    module = f"trl.scripts.{arguments.script}"
    if importlib.util.find_spec(module) is None:
        # Not caught above, where what goes wrong in a script keeps its traceback.
        sys.exit(f"hf-vlm-rl trl: Got {arguments.script!r}. The installed TRL has no such script ({module}).")
    register()
    # As `trl` itself does: reward functions are looked up from here.
    sys.path.insert(0, os.getcwd())
    sys.argv = [f"trl {arguments.script}", *arguments.arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


COMMANDS: dict[str, Command] = {
    "check": Command("is a model supported, and what does an image cost?", check.arguments, check.run),
    "convert": Command("InternVL's original format to transformers'", _convert_arguments, _convert),
    "demo": Command("a tiny model learns to read digits, on a CPU", demo.arguments, demo.run),
    "eval": Command("rewards of a model or adapter on a dataset", evaluation.arguments, evaluation.run),
    "plan": Command("the memory of a GRPO run, and settings that fit a GPU", plan.arguments, plan.run),
    "push": Command("an adapter and its card to the Hub", push.arguments, push.run),
    "trl": Command("a TRL script, with models loaded as policies", _trl_arguments, _trl),
}
