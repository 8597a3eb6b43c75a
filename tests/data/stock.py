"""TRL's own trainers on a dataset as it was loaded, two steps each."""

from typing import Any

import trl
from transformers import set_seed

from tests.trainers.runs import PLAIN, ROLLOUT, by_ids, logs

OFFLINE = {"per_device_train_batch_size": 3, "max_length": None}
ONLINE = ROLLOUT | {"shuffle_dataset": False}
# Name -> columns beside prompt and images, options, what is logged.
KINDS = {
    "GRPO": ((), ONLINE, ("loss", "grad_norm", "entropy")),
    "RLOO": ((), ONLINE, ("loss", "grad_norm", "entropy")),
    "DPO": (("chosen", "rejected"), OFFLINE, ("loss", "grad_norm", "rewards/margins")),
    "KTO": (("completion", "label"), OFFLINE, ("loss", "grad_norm")),
    "SFT": (("completion",), OFFLINE, ("loss", "grad_norm")),
}


def train(kind: str, policy: Any, dataset: Any, out: Any, **options: Any) -> list[list[float]]:
    """What each of two steps logged."""
    _, defaults, logged = KINDS[kind]
    set_seed(3)
    config = getattr(trl, f"{kind}Config")(
        output_dir=str(out), **PLAIN | defaults | {"max_steps": 2} | options
    )
    rewards = {"reward_funcs": by_ids} if defaults is ONLINE else {}
    trainer = getattr(trl, f"{kind}Trainer")(
        model=policy,
        processing_class=policy.processing_class,
        args=config,
        train_dataset=dataset,
        peft_config=policy.lora_config(r=4),
        **rewards,
    )
    trainer.train()
    return logs(trainer, *logged)
