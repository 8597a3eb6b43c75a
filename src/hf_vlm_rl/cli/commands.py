"""The `hf-vlm-rl` command: one table of subcommands."""

import argparse
import inspect
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from types import ModuleType

from ..errors import TicketError
from . import check, clean, convert, data, demo, env, plan, push, tiny, trl, try_it, vllm_front
from . import eval as evaluation
from .arguments import in_flags

# Those of which a report of an error should say the version.
PACKAGES = ("hf-vlm-rl", "transformers", "trl", "peft", "torch")


# Name to the module of the command and a line for `--help`. In a module, `arguments` adds its arguments to a
# parser, and `run` does the work and returns the exit status; None is 0.
COMMANDS: dict[str, tuple[ModuleType, str]] = {
    "check": (check, "is a model supported, and what does an image cost?"),
    "clean": (clean, "remove images that no run used for some time"),
    "convert": (convert, "InternVL's original format to transformers'"),
    "data": (data, "is every row and image of a dataset fit for training?"),
    "demo": (demo, "a tiny model learns to read digits, on a CPU"),
    "env": (env, "versions and device, for a report of an error"),
    "eval": (evaluation, "rewards of a model or adapter on a dataset"),
    "plan": (plan, "the memory of a GRPO run, and settings that fit a GPU"),
    "push": (push, "an adapter and its card to the Hub"),
    "tiny": (tiny, "a tiny checkpoint of random weights, to try with"),
    "trl": (trl, "a TRL script, with models loaded as policies"),
    "try": (try_it, "questions to an adapter and its base, in a browser"),
    "vllm-front": (vllm_front, "images for trainers that send vLLM servers ids alone"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and give its exit status."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next
        import argcomplete

        argcomplete.autocomplete(parser)
    options = parser.parse_args(argv)
    command, _ = COMMANDS[options.command]
    # Old names of transformers' that PEFT and TRL call; whoever runs a command can do nothing about it.
    warnings.filterwarnings("ignore", message=r"`\w*gradient_checkpointing\w*` is deprecated")
    try:
        status = command.run(options) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads has enough, as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"hf-vlm-rl {options.command}: interrupted", file=sys.stderr)  # noqa: T201
        return 130
    except Exception as error:
        from .env import KNOWN

        for text, (why, mending) in KNOWN.items():
            if text in str(error):
                print(f"hf-vlm-rl {options.command}: {why}. To mend it: {mending}", file=sys.stderr)  # noqa: T201
        if options.command == "trl" or not isinstance(
            error, ImportError | OSError | ValueError | TicketError
        ):
            raise
        print(f"hf-vlm-rl {_about(options)}: {in_flags(str(error), _usage(command))}", file=sys.stderr)  # noqa: T201
        return 1


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="hf-vlm-rl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Vision-language models as policies for TRL's stock trainers.",
        epilog="Exit status: 0 if it was done; 1 with a message if it was not; 2 for wrong arguments.",
    )
    first, *others = (f"{package} {version(package)}" for package in PACKAGES)
    text = f"{first} ({', '.join(others)})"
    parser.add_argument(
        "--version", action="version", version=text, help="versions of this package and those it works with"
    )
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, (command, line) in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=line,
            description=inspect.cleandoc(command.run.__doc__),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.arguments(subparser)
    return parser


def _about(options: argparse.Namespace) -> str:
    """The command and its model: what transformers says of files on the Hub does not name the model."""
    arguments = vars(options)
    model = arguments.get("model") or arguments.get("source")
    return f"{options.command} {model}" if model else options.command


def _usage(command: ModuleType) -> str:
    parser = argparse.ArgumentParser(add_help=False)
    command.arguments(parser)
    return parser.format_usage()
