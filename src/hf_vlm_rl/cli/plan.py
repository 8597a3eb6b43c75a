"""`hf-vlm-rl plan`: the memory of a GRPO run, and settings that fit."""

import argparse
from dataclasses import fields

from ..plan.settings import Run, candidates
from .arguments import add_revision, add_trust, at_least, gibibytes, hub_arguments, not_negative, pixels


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    parser.add_argument("model", help="Hub id or directory; its weights are not downloaded")
    parser.add_argument("--gpu", type=gibibytes, required=True, help="memory of a GPU, as 24GB")
    parser.add_argument("--num-gpus", type=at_least(1), dest="gpus", default=1, help="default: 1")
    parser.add_argument("--sharding", choices=["ddp", "zero3"], default="ddp", help="over several GPUs")
    parser.add_argument("--image", type=pixels, default=(448, 448), help="width x height, as 1024x768")
    parser.add_argument("--images", type=at_least(0), default=1, help="images of a prompt (default: 1)")
    parser.add_argument(
        "--text", type=at_least(0), default=64, help="tokens of a prompt's text (default: 64)"
    )
    parser.add_argument(
        "--completion", type=at_least(1), default=256, help="tokens of a completion (default: 256)"
    )
    parser.add_argument("--group", type=at_least(2), default=8, help="completions of a prompt (default: 8)")
    parser.add_argument("--rank", type=at_least(1), default=16, help="of LoRA (default: 16)")
    parser.add_argument(
        "--target", choices=["language", "language+projector", "all"], default="language", help="of LoRA"
    )
    parser.add_argument("--full", action="store_true", help="train all weights but the vision tower's")
    parser.add_argument("--vision", action="store_true", help="with --full: train the vision tower, too")
    parser.add_argument("--beta", type=not_negative, default=0.0, help="KL coefficient (default: 0)")
    parser.add_argument("--precision", choices=["bf16", "4bit", "fp32"], nargs="+", help="those to try")
    parser.add_argument(
        "--no-sharing", action="store_false", dest="sharing", help="every row computes its own prompt"
    )
    add_revision(parser)
    add_trust(parser)


def run(options: argparse.Namespace) -> int:
    """Estimate the memory of a GRPO run and print the settings with the fewest compromises that fit.

    Exit status: 0 if some fit, 1 if none do.
    """
    from ..loading.checkpoint import read_checkpoint
    from ..plan.memory import search
    from ..plan.report import report

    if options.vision and not options.full:
        raise ValueError(
            "Got --vision without --full: with LoRA, the tower is adapted by --target all instead."
        )
    if options.full:
        options.rank = None
    wanted = Run(**{field.name: getattr(options, field.name) for field in fields(Run)})
    precisions = tuple(options.precision) if options.precision else None
    if "4bit" in (precisions or ()) and wanted.rank is None:
        raise ValueError(
            "Got --precision 4bit with --full. 4-bit weights are not trained; train LoRA on them."
        )
    if "4bit" in (precisions or ()) and wanted.gpus > 1 and wanted.sharding == "zero3":
        raise ValueError(
            "Got --precision 4bit with --sharding zero3, which cannot spread bitsandbytes' 4-bit weights. "
            "Take --sharding ddp, or bf16."
        )
    checkpoint = read_checkpoint(options.model, hub_arguments(options))
    plan = search(checkpoint, wanted, options.gpu, candidates(wanted, precisions))
    print(report(plan, wanted))  # noqa: T201
    return 0 if plan.fits else 1
