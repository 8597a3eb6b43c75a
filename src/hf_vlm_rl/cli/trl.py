"""`hf-vlm-rl trl`: TRL's own scripts, with models loaded as policies."""

import argparse
import importlib
import os
import pkgutil
import runpy
import sys


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trl`."""
    parser.add_argument("script", help="grpo, dpo, sft, ...: as for `trl`")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="that script's own arguments")


def run(options: argparse.Namespace) -> None:
    """Run TRL's own training script in this process, after hf_vlm_rl.register().

    For several processes: accelerate launch -m hf_vlm_rl.cli trl grpo ...
    """
    from ..loading.register import register

    module = f"trl.scripts.{options.script}"
    places = importlib.import_module("trl.scripts").__path__
    names = [script.name for script in pkgutil.iter_modules(places) if script.name[0] != "_"]
    if options.script not in names:
        # `main` lets the errors of a script through with their traceback; this one is the user's.
        sys.exit(f"hf-vlm-rl trl: Got {options.script!r}. The installed TRL has {', '.join(names)}.")
    register()
    # As `trl` itself does: reward functions are looked up from here.
    sys.path.insert(0, os.getcwd())
    sys.argv = [f"trl {options.script}", *options.arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
