"""`hf-vlm-rl vllm-front`: a front for vLLM servers, for trainers that load their model themselves."""

import argparse
import os
import signal
import sys
import threading

from ..processing.images.bounds import OPTIONS
from .arguments import PORTS, add_revision, add_trust, at_least, hub_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `vllm-front`."""
    parser.add_argument("model", help="Hub id or directory of the policy, or of its base")
    parser.add_argument(
        "--server",
        action="append",
        required=True,
        metavar="URL",
        help="address of a `vllm serve`, as http://gpu:8000; several share the requests",
    )
    parser.add_argument("--store", help="directory of the trainer's images (default: $HF_VLM_RL_CACHE)")
    for name in OPTIONS:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(
            flag, type=at_least(1), metavar="N", help="as the trainer's from_pretrained got it"
        )
    add_revision(parser)
    add_trust(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; other machines need $HF_VLM_RL_FRONT_TOKEN"
    )
    parser.add_argument(
        "--port", type=at_least(0, PORTS), default=8100, help="0: any free one (default: 8100)"
    )


def run(options: argparse.Namespace) -> None:
    """Answer trainers that send ids with tickets, by asking vLLM servers with the images.

    Give its address to a trainer in the place of the server's. It runs where the trainer runs, whose images
    it reads from disk. `policy.serving` is the same inside a script, and compares log-probs besides. Needs
    the extra `vllm`. Reads $HF_VLM_RL_FRONT_TOKEN, what requests have to bring, and $VLLM_API_KEY.
    """
    from ..front.serving import TOKEN, serving
    from ..loading.auto import AutoVLMPolicy
    from ..processing.images.store import ImageStore

    if options.store and not os.path.isdir(options.store):
        raise ValueError(f"Got --store {options.store}, no directory. Expected that of the trainer's images.")
    store = ImageStore(options.store) if options.store else None
    bounds = {name: getattr(options, name) for name in OPTIONS}
    bounds = {name: value for name, value in bounds.items() if value is not None}
    tokenizer = AutoVLMPolicy.tokenizer(options.model, image_store=store, **bounds, **hub_arguments(options))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    listening = {"host": options.host, "port": options.port, "token": os.environ.get(TOKEN)}
    with serving(tokenizer, options.server, **listening) as url:
        sys.stdout.write(f"{url} asks {', '.join(options.server)} for {options.model}\n")
        sys.stdout.flush()
        stopped.wait()
