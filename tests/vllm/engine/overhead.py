"""What a front costs: the same requests to a `vllm serve` directly and through it, in turns.

`python -m tests.vllm.engine.overhead OUT.jsonl` writes a line for each kind of request: the medians of all
rounds in milliseconds. The model is tiny and on a CPU.
"""

import json
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np
import PIL.Image
import requests
import torch

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.front.ask import content_part
from hf_vlm_rl.front.requests import read_request
from tests.front.asking import encode
from tests.vllm.engine import cpu
from tests.vllm.engine.models import write_checkpoint

ROUNDS, REQUESTS, TOKENS = 7, 15, 8
SIZE = (448, 448)
LONGEST = 1024


def picture(number: int) -> PIL.Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (SIZE[1] // 8, SIZE[0] // 8, 3), dtype=np.uint8)
    return PIL.Image.fromarray(pixels).resize(SIZE, PIL.Image.Resampling.BICUBIC)


def bodies(policy, model: str, kind: str, turn: int) -> list[dict]:
    """Requests of a trainer; images are new in every turn, unless all are the same."""
    rows = []
    for number in range(turn * REQUESTS, (turn + 1) * REQUESTS):
        shown = [] if kind == "text" else [picture(0 if kind == "the same image" else number)]
        ids = encode(policy, f"What is it? {number}", *shown)
        asked = {"model": model, "prompt": [ids], "max_tokens": TOKENS, "temperature": 1.0, "logprobs": 0}
        rows.append(asked | {"n": 8 if kind == "n=8, an image" else 1, "return_token_ids": True})
    return rows


def direct(policy, body: dict) -> dict:
    """What a trainer would send vLLM itself, if it sent images."""
    read = read_request(policy.tokenizer, body, LONGEST)
    asked = {"model": body["model"], "token_ids": read.prompts[0].short_ids, "return_token_ids": True}
    asked["sampling_params"] = read.sampling | {"output_kind": 2}
    if read.prompts[0].images:
        asked["content_parts"] = [content_part(image) for image in read.prompts[0].images]
    return asked


def milliseconds(session, url: str, rows: list[dict]) -> float:
    """The median time of a request, answered one after the other."""
    times = []
    for row in rows:
        began = time.perf_counter()
        answer = session.post(url, json=row)
        times.append(1e3 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text
    return statistics.median(times)


def forget(session, address: str) -> None:
    """Let the server process and encode images anew."""
    for path in ("reset_mm_cache", "reset_encoder_cache", "reset_prefix_cache"):
        assert session.post(f"{address}/{path}").status_code == 200


def by_uuid(session, address: str, asked: dict) -> dict:
    """An image that the server has: sent again, and named alone."""
    (part,) = asked["content_parts"]
    named = part | {"uuid": uuid.uuid4().hex}
    url = f"{address}/inference/v1/generate"
    milliseconds(session, url, [asked | {"content_parts": [named]}])
    rounds = {"sent": [], "named": []}
    for _ in range(ROUNDS):
        rounds["sent"].append(milliseconds(session, url, [asked | {"content_parts": [named]}] * REQUESTS))
        without = asked | {"content_parts": [named | {"url": None}]}
        rounds["named"].append(milliseconds(session, url, [without] * REQUESTS))
    return {"kind": "an image that the server has", "bytes": len(part["url"])} | rounds


def main(out: str) -> None:
    directory = Path(tempfile.mkdtemp())
    model = str(write_checkpoint("qwen2_5_vl", directory / "model"))
    policy = AutoVLMPolicy.from_pretrained(model, dtype="float32")
    session, lines = requests.Session(), []
    with cpu.serving(Path(model), directory / "serve.log") as address, policy.serving(address) as url:
        for kind in ("text", "the same image", "an image", "n=8, an image"):
            rounds = {"direct": [], "front": []}
            for number in range(ROUNDS + 1):
                rows = bodies(policy, model, kind, number)
                without = [direct(policy, row) for row in rows]
                for way, address_of, sent in (
                    ("direct", f"{address}/inference/v1/generate", without),
                    ("front", f"{url}/v1/completions", rows),
                ):
                    forget(session, address)
                    taken = milliseconds(session, address_of, sent)
                    if number:  # the first warms up
                        rounds[way].append(taken)
            lines.append({"kind": kind} | rounds)
        lines.append(by_uuid(session, address, direct(policy, bodies(policy, model, "an image", 0)[0])))
    Path(out).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
