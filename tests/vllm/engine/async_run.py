"""AsyncGRPOTrainer with images, by the id of a model, through `hf-vlm-rl vllm-front`: run as a program.

`python -m tests.vllm.engine.async_run CHECKPOINT SERVER FRONT WEIGHTS` prints a line of JSON. TRL's worker is
a process of its own, and asks the front. Stubbed: the name of a card, for which TRL asks CUDA, and with
WEIGHTS "all" the group for them, which go to a file that the server loads. An adapter goes as TRL sends it.
"""

import json
import sys
import tempfile
from pathlib import Path

import requests
import torch
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import save_file

from hf_vlm_rl import AutoVLMPolicy, VLMPolicy, register
from tests.trainers.asynchronous import asynchronous, without_card
from tests.trainers.runs import PLAIN, by_ids, mixture
from tests.vllm.engine.async_parts import differences, load_adapter, logged, stayed, unload_adapters

AsyncGRPOTrainer, AsyncGRPOConfig = asynchronous("async_grpo")
STEPS = 5


class ByFile:
    """Sends weights by a file; the caches behind them are dropped by way of the front."""

    def __init__(self, server, front):
        self.server, self.front, self.model = server, front, None

    def send_weights(self, weights):
        named = dict(self.model.named_parameters()) | dict(weights)
        directory = Path(tempfile.mkdtemp())
        weights = {name: weight.detach().clone().contiguous() for name, weight in named.items()}
        save_file(weights, directory / "model.safetensors")
        given = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        requests.post(f"{self.server}/collective_rpc", json=given).raise_for_status()
        requests.post(f"{self.front}/reset_prefix_cache").raise_for_status()

    def pause(self):
        requests.post(f"{self.front}/pause", params={"mode": "keep"}).raise_for_status()

    def resume(self):
        requests.post(f"{self.front}/resume").raise_for_status()

    def init_weight_transfer(self): ...
    def destroy(self): ...


def run(checkpoint: str, server: str, front: str, weights: str) -> dict:
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint).processing_class.enable_tools().as_tokenizer()
    transfer = ByFile(server, front) if weights == "all" else None
    settings = {name: value for name, value in PLAIN.items() if name != "gradient_checkpointing"}
    trainer = AsyncGRPOTrainer(
        model=checkpoint,
        processing_class=tokenizer,
        reward_funcs=by_ids,
        args=AsyncGRPOConfig(
            tempfile.mkdtemp(),
            **settings | {"learning_rate": 1e-3, "max_steps": STEPS},
            per_device_train_batch_size=6,
            gradient_accumulation_steps=1,
            num_generations=2,
            max_completion_length=8,
            token_budget=0,
            queue_maxsize=12,
            # With 0, TRL would unload adapters that requests still name.
            max_staleness=0 if transfer else 3,
            vllm_server_base_url=front,
            vllm_server_timeout=60,
        ),
        train_dataset=Dataset.from_list([tokenizer.with_tickets(row) for row in mixture("qwen2_5_vl")]),
        weight_transfer=transfer,
        peft_config=None if transfer else LoraConfig(r=4, target_modules=r".*language_model.*(q|v)_proj"),
    )
    model = trainer.model
    policy = model if transfer else model.get_base_model()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    if transfer:
        transfer.model = policy
    trainer.train()
    name = checkpoint
    if transfer:
        transfer.send_weights(())
    name = checkpoint if transfer else load_adapter(front, model, tokenizer)
    row = tokenizer.with_tickets(mixture("qwen2_5_vl")[0])
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    ids = list(tokenizer.apply_chat_template(row["prompt"], **options))
    distances = differences(front, name, policy, tokenizer, ids)
    unload_adapters(front)
    return {
        "policy": isinstance(policy, VLMPolicy),
        "images": len(tokenizer.places(ids)[1]),
        "steps": trainer.state.global_step,
        "versions": trainer.model_version,
        "stayed": stayed(model, before),
        "after": max(distances),
        "encoded": policy.sharing_report()["images_encoded"],
        **logged(trainer, "ratio", "kl", "sample/staleness_max", "sample/dropped_stale_total"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    register()
    without_card(AsyncGRPOTrainer)
    print("RESULT " + json.dumps(run(*sys.argv[1:])), flush=True)
