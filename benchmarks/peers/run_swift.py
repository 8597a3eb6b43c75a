"""ms-swift's `swift rlhf` on the same checkpoint and rows, inside this process so that it can be watched.

Runs in ms-swift's own environment. `--padding_free` and `--packing` demand flash attention there, and
`--use_liger_kernel` a GPU's kernels, so its defaults are the best that it has on a CPU.
"""

import json
from pathlib import Path
from typing import Any

import torch
from swift.pipelines import rlhf_main
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
from swift.template.templates import qwen
from swift.trainers.trainer_factory import TrainerFactory

from .meter import Meter
from .setting import GROUP, LORA, Setting, asked

PLUGIN = Path(__file__).with_name("swift_reward.py")


class WatchedTrainer(GRPOTrainer):
    """Their trainer with a meter on it."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        side, setting, out = asked()
        _of_exact_length(self.model.get_base_model(), setting)
        Meter(self, side, setting, out)


def _of_exact_length(base: Any, setting: Setting) -> None:
    """No option of theirs forces a length or forbids ids, so `generate` is told."""
    generate = base.generate

    def exact(*args, **kwargs):
        kwargs["generation_config"].min_new_tokens = setting.completion
        kwargs["generation_config"].suppress_tokens = setting.never
        return generate(*args, **kwargs)

    base.generate = exact


def _with_the_ids_of(setting: Setting) -> None:
    """Their templates have the ids of Qwen's tokenizer written in; this checkpoint has others."""
    config = json.loads(Path(setting.checkpoint, "config.json").read_text())
    for template in vars(qwen).values():
        if isinstance(template, type) and getattr(template, "image_token_id", None) is not None:
            template.image_token_id = config["image_token_id"]
            template.video_token_id = config["video_token_id"]


def options(setting: Setting) -> list[str]:
    """The arguments of `swift rlhf`."""
    values = {
        "rlhf_type": "grpo",
        "model": setting.checkpoint,
        "model_type": "qwen2_5_vl",
        "template": "qwen2_5_vl",
        "dataset": setting.rows,
        "external_plugins": PLUGIN,
        "reward_funcs": "spread",
        "tuner_type": "lora",
        "lora_rank": LORA["r"],
        "lora_alpha": LORA["lora_alpha"],
        "lora_dropout": LORA["lora_dropout"],
        "target_modules": "all-linear",
        "freeze_vit": "true",
        "freeze_aligner": "true",
        "torch_dtype": "float32",
        "bf16": "false",
        "fp16": "false",
        "num_generations": GROUP,
        "per_device_train_batch_size": setting.micro,
        "gradient_accumulation_steps": GROUP // setting.micro,
        "steps_per_generation": GROUP // setting.micro,
        "max_completion_length": setting.completion,
        "max_length": 4096,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "beta": 0,  # TRL's default; theirs encodes the images once more
        "gradient_checkpointing": str(setting.checkpointing).lower(),
        "learning_rate": 0,
        "max_steps": setting.steps,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "split_dataset_ratio": 0,
        "dataset_shuffle": "false",
        "train_dataloader_shuffle": "false",
        "report_to": "none",
        "output_dir": f"{setting.folder}/out",
        "add_version": "false",
        "use_vllm": "false",
        "dataloader_num_workers": 0,
        "dataset_num_proc": 1,
        "use_hf": "true",
        "use_cpu": "true",
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def main() -> None:
    torch.set_num_threads(1)
    _, setting, _ = asked()
    _with_the_ids_of(setting)
    # By its name in this module as others import it, which is not `__main__`.
    TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__spec__.name}.WatchedTrainer"
    rlhf_main(options(setting))


if __name__ == "__main__":
    main()
