"""`hf-vlm-rl trl`."""

import argparse
import importlib.util
import os
import runpy
import sys


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trl`."""
    parser.add_argument("script", help="grpo, dpo, sft, ...: as for `trl`")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="that script's own arguments")


def run(given: argparse.Namespace) -> None:
    """Run TRL's own training script in this process, after hf_vlm_rl.register().

    For several processes: accelerate launch -m hf_vlm_rl.cli trl grpo ...
    """
    from ..loading.registration import register

    module = f"trl.scripts.{given.script}"
    if importlib.util.find_spec(module) is None:
        # Not caught above, where what goes wrong in a script keeps its traceback.
        sys.exit(f"hf-vlm-rl trl: Got {given.script!r}. The installed TRL has no such script ({module}).")
    register()
    # As `trl` itself does: reward functions are looked up from here.
    sys.path.insert(0, os.getcwd())
    sys.argv = [f"trl {given.script}", *given.arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
