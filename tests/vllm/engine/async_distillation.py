"""AsyncDistillationTrainer with images, by the id of a model, on a real server: run as a program.

`python -m tests.vllm.engine.async_distillation CHECKPOINT FRONT` prints two lines of JSON. One server has
both: the teacher is the base, the student the base with an adapter. In one run the adapter changes nothing at
first, in the other it is random.
"""

import json
import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig

from hf_vlm_rl import AutoVLMPolicy, register
from tests.trainers.asynchronous import asynchronous, without_card
from tests.trainers.runs import PLAIN, mixture
from tests.vllm.engine.async_parts import logged, stayed, unload_adapters

AsyncDistillationTrainer, AsyncDistillationConfig = asynchronous("async_distillation")


def run(checkpoint: str, front: str, scale: float, steps: int) -> dict:
    """Train an adapter whose second factors are normal at first, with the deviation `scale`."""
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint)
    settings = {name: value for name, value in PLAIN.items() if name != "gradient_checkpointing"}
    trainer = AsyncDistillationTrainer(
        model=checkpoint,
        processing_class=tokenizer,
        args=AsyncDistillationConfig(
            tempfile.mkdtemp(),
            **settings | {"learning_rate": 1e-2, "max_steps": steps},
            per_device_train_batch_size=9,
            gradient_accumulation_steps=1,
            max_completion_length=8,
            token_budget=0,
            max_staleness=1,
            queue_maxsize=9,
            model_init_kwargs={"attn_implementation": "sdpa"},
            vllm_server_base_url=front,
            teacher_server_urls={"default": front},
            vllm_server_timeout=60,
        ),
        train_dataset=Dataset.from_list([tokenizer.with_tickets(row) for row in mixture("qwen2_5_vl")]),
        peft_config=LoraConfig(r=4, target_modules=r".*language_model.*(q|v)_proj"),
    )
    model = trainer.model
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=scale)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer.train()
    unload_adapters(front)
    return {
        "stayed": stayed(model, before),
        "encoded": model.get_base_model().sharing_report()["images_encoded"],
        **logged(trainer, "jsd", "entropy", "teacher_entropy"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    register()
    without_card(AsyncDistillationTrainer)
    for scale, steps in ((0.0, 2), (0.1, 8)):
        print("RESULT " + json.dumps(run(*sys.argv[1:], scale, steps)), flush=True)
