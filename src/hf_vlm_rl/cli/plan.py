"""`hf-vlm-rl plan`."""

import argparse

from ..plan.settings import OPTIMIZERS, Run, candidates
from .arguments import (
    gibibytes,
    pixels,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    parser.add_argument("model", help="Hub id or directory; its weights are not downloaded")
    parser.add_argument("--gpu", type=gibibytes, required=True, help="memory of a GPU, as 24GB")
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument("--sharding", choices=["ddp", "zero3"], default="ddp", help="over several GPUs")
    parser.add_argument("--image", type=pixels, default=(448, 448), help="width x height, as 1024x768")
    parser.add_argument("--images", type=int, default=1, help="images of a prompt (default: 1)")
    parser.add_argument("--text", type=int, default=64, help="tokens of a prompt's text (default: 64)")
    parser.add_argument("--completion", type=int, default=256, help="tokens of a completion (default: 256)")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt (default: 8)")
    parser.add_argument("--rank", type=int, default=16, help="of LoRA (default: 16)")
    parser.add_argument("--target", default="language", help="of LoRA: language, language+projector or all")
    parser.add_argument("--full", action="store_true", help="train all weights but the vision tower's")
    parser.add_argument("--vision", action="store_true", help="with --full: train the vision tower, too")
    parser.add_argument("--beta", type=float, default=0.0, help="KL coefficient (default: 0)")
    parser.add_argument("--optim", choices=OPTIMIZERS, default="adamw_torch_fused")
    parser.add_argument("--precision", choices=["bf16", "4bit", "fp32"], nargs="+", help="those to try")
    parser.add_argument("--no-sharing", action="store_true", help="every row computes its own prompt")
    parser.add_argument("--revision", help="branch, tag or commit of the Hub id")


def run(given: argparse.Namespace) -> int:
    """Estimate the memory of a GRPO run and print the settings with the fewest compromises that fit.

    Exit status: 0 if some fit, 1 if none do.
    """
    from ..loading.meta import read_checkpoint
    from ..plan.report import report
    from ..plan.search import search

    wanted = Run(
        image=given.image,
        images=given.images,
        text=given.text,
        completion=given.completion,
        group=given.group,
        rank=None if given.full else given.rank,
        target=given.target,
        vision=given.vision,
        beta=given.beta,
        optim=given.optim,
        gpus=given.num_gpus,
        sharding=given.sharding,
        sharing=not given.no_sharing,
    )
    precisions = tuple(given.precision) if given.precision else None
    if "4bit" in (precisions or ()) and wanted.rank is None:
        raise ValueError(
            "Got --precision 4bit with --full. 4-bit weights are not trained; train LoRA on them."
        )
    located = {} if given.revision is None else {"revision": given.revision}
    plan = search(read_checkpoint(given.model, located), wanted, given.gpu, candidates(wanted, precisions))
    print(report(plan, wanted))  # noqa: T201
    return 0 if plan.fits else 1
