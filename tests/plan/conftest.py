"""Real runs of stock GRPO, weighed tensor by tensor."""

import functools
import tempfile

import pytest
import torch
from datasets import Dataset
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.loading.checkpoint import Checkpoint
from hf_vlm_rl.plan.dry import LiveBytes
from tests.tiny import recipe


@pytest.fixture(scope="session")
def read():
    """`read(family)`: what is read of its tiny checkpoint."""

    def checkpoint(family):
        made = recipe(family)
        return Checkpoint(family, made.config, made.processor)

    return checkpoint


@pytest.fixture(scope="session")
def measured():
    """`measured(family, run, settings)`: bytes at the peak of forward and backward in a real run on a CPU."""
    return functools.cache(_measure)


def _measure(family, run, settings):
    made = recipe(family)
    dtype = torch.float32 if settings.precision == "fp32" else torch.bfloat16
    policy = AutoVLMPolicy.from_config(made.config, made.processor, dtype=dtype)
    policy.base_model.sharing.mode = "auto" if run.sharing else False
    row = {"prompt": [{"role": "user", "content": "a"}], "images": [Image.new("RGB", run.image)]}
    placeholders = list(policy.placeholder_ids)
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=policy,
            processing_class=policy.processing_class,
            reward_funcs=lambda completions, **_: [float(index) for index in range(len(completions))],
            train_dataset=Dataset.from_list([row]),
            peft_config=policy.lora_config(r=run.rank),
            args=GRPOConfig(
                output_dir=out,
                report_to="none",
                use_cpu=True,
                bf16=dtype is torch.bfloat16,
                save_strategy="no",
                gradient_checkpointing=settings.checkpointing,
                max_steps=1,
                per_device_train_batch_size=settings.rows,
                gradient_accumulation_steps=settings.accumulation,
                num_generations=settings.group,
                max_completion_length=run.completion,
                generation_kwargs={"min_new_tokens": run.completion, "suppress_tokens": placeholders},
                dataloader_pin_memory=False,
                disable_tqdm=True,
            ),
        )
        return _weigh(trainer)


def _weigh(trainer):
    live = LiveBytes()
    stock_loss, stock_backward = trainer.compute_loss, trainer.accelerator.backward

    def loss(model, inputs, *args, **kwargs):
        inputs["completion_mask"][-1, -1] = 0  # completions of different lengths, as they usually are
        live.__enter__()
        return stock_loss(model, inputs, *args, **kwargs)

    def backward(value, **kwargs):
        stock_backward(value, **kwargs)
        live.__exit__(None, None, None)

    trainer.compute_loss, trainer.accelerator.backward = loss, backward
    trainer.train()
    return live.peak
