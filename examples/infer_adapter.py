# /// script
# requires-python = ">=3.11"
# dependencies = ["hf-vlm-rl"]
# [tool.uv.sources]
# hf-vlm-rl = { path = "..", editable = true }
# ///
"""Ask a trained adapter (or any model) about images; its base and its processor are found.

python examples/infer_adapter.py out/adapter --images photo.jpg --question "What is this?"
"""

import argparse

from hf_vlm_rl import AutoVLMPolicy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="Hub id or directory of an adapter or a model")
parser.add_argument("--images", nargs="+", default=[], help="files or URLs, all in one conversation")
parser.add_argument(
    "--question", default="What is in the picture?", help="what to ask (default: %(default)s)"
)
parser.add_argument("--base_model", help="where the base is now, if the adapter names another place")
parser.add_argument("--dtype", default="bfloat16", help="of the weights (default: %(default)s)")
parser.add_argument("--device_map", default="auto", help="cpu, cuda:0, auto, ... (default: %(default)s)")
parser.add_argument("--max_new_tokens", type=int, default=256, help="longest answer (default: %(default)s)")
parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest tokens (default)")

if __name__ == "__main__":
    args = parser.parse_args()
    policy = AutoVLMPolicy.from_pretrained(
        args.model, base_model=args.base_model, dtype=args.dtype, device_map=args.device_map
    )
    sampling = (
        {"do_sample": True, "temperature": args.temperature} if args.temperature else {"do_sample": False}
    )
    print(policy.chat(args.question, args.images, max_new_tokens=args.max_new_tokens, **sampling))
