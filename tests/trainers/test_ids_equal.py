"""What trainers compute from ids with tickets is what the policy computes of each row by itself."""

import pytest
import torch
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

from hf_vlm_rl.families.tiny import templates
from tests.trainers.ids_runs import answered, carried, conversations, judged, preferences
from tests.trainers.runs import PLAIN, TWO, flat, logs, square

pytestmark = pytest.mark.trl

IGNORED = -100
STEP = PLAIN | {"per_device_train_batch_size": 3, "max_steps": 1}
# The markers say which tokens are the assistant's.
MARKED = templates.QWEN2_VL.replace(
    "{{- '<|im_start|>' + message.role + '\\n' + blocks(message.content) + '<|im_end|>\\n' -}}",
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' -%}"
    "{% generation %}{{ blocks(message.content) + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{%- else -%}{{ blocks(message.content) + '<|im_end|>\\n' }}{%- endif -%}",
)


def sft(policy, dataset, out, **options) -> SFTTrainer:
    return SFTTrainer(
        model=policy,
        processing_class=policy.tokenizer,
        train_dataset=dataset,
        args=SFTConfig(output_dir=str(out), **STEP | {"max_length": 512} | options),
    )


def loss_of_rows(policy, rows: list[tuple[list[int], list[int]]]) -> float:
    """The mean loss of the labelled tokens, a row at a time."""
    total, count = 0.0, 0
    for ids, labels in rows:
        with torch.no_grad():
            logits = policy(input_ids=torch.tensor([ids])).logits[0, :-1]
        wanted = torch.tensor(labels[1:])
        total += torch.nn.functional.cross_entropy(
            logits, wanted, ignore_index=IGNORED, reduction="sum"
        ).item()
        count += int((wanted != IGNORED).sum())
    return total / count


def completions(policy, dataset) -> list[tuple[list[int], list[int]]]:
    """Ids, and labels at the completion."""
    rows = []
    for row in dataset:
        prompt = policy.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)["input_ids"]
        ids = policy.tokenizer.apply_chat_template(row["prompt"] + row["completion"])["input_ids"]
        assert ids[: len(prompt)] == prompt
        rows.append((ids, [IGNORED] * len(prompt) + ids[len(prompt) :]))
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": None, "padding_free": True},
        {"packing": True},
        {"packing": True, "max_length": 4096, "pad_to_multiple_of": 64},
        {"pad_to_multiple_of": 16},
        {"dataset_num_proc": 2},
        {"dataloader_num_workers": 1},
        {"loss_type": "dft"},
        {"gradient_checkpointing": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("family", TWO)
def test_sft(family, options, policy_for, tmp_path):
    policy = policy_for(family)
    dataset = carried(policy, answered(square("cat")))
    expected = loss_of_rows(policy, completions(policy, dataset))
    trainer = sft(policy, dataset, tmp_path, **options)
    trainer.train()
    if options.get("loss_type") == "dft":
        assert flat(trainer, "loss")[0] < expected  # each token's loss times its probability
    else:
        assert flat(trainer, "loss") == pytest.approx([expected], abs=1e-5)


def test_sft_on_the_assistants_tokens_alone(policy_for, tmp_path):
    policy = policy_for("qwen2_5_vl")
    assert "generation" in MARKED
    dataset = carried(policy, conversations(square("cat")))
    before = policy.tokenizer.chat_template
    try:
        policy.tokenizer.chat_template = MARKED
        rows = []
        for row in dataset:
            encoded = policy.tokenizer.apply_chat_template(row["messages"], return_assistant_tokens_mask=True)
            pairs = zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)
            rows.append((encoded["input_ids"], [token if own else IGNORED for token, own in pairs]))
            own = [token for token in rows[-1][1] if token != IGNORED]
            assert policy.tokenizer.decode(own) == "A red cup.<|im_end|>"
        expected = loss_of_rows(policy, rows)
        trainer = sft(policy, dataset, tmp_path, assistant_only_loss=True)
        trainer.train()
    finally:
        policy.tokenizer.chat_template = before
    assert flat(trainer, "loss") == pytest.approx([expected], abs=1e-5)


@pytest.mark.parametrize("family", TWO)
def test_sft_on_whole_rows_leaves_out_the_images(family, policy_for, tmp_path):
    policy = policy_for(family)
    dataset = carried(policy, conversations(square("cat")))
    encoded = [policy.tokenizer.apply_chat_template(row["messages"])["input_ids"] for row in dataset]
    rows = [(ids, policy.tokenizer.text_labels(ids)) for ids in encoded]
    expected = loss_of_rows(policy, rows)
    columns = Dataset.from_list([{"input_ids": ids, "labels": labels} for ids, labels in rows])
    trainer = sft(policy, columns, tmp_path)
    trainer.train()
    assert flat(trainer, "loss") == pytest.approx([expected], abs=1e-5)


def preference_trainer(policy, rows, processing_class, out, **options) -> DPOTrainer:
    return DPOTrainer(
        model=policy,
        processing_class=processing_class,
        train_dataset=rows,
        args=DPOConfig(output_dir=str(out), **STEP | {"max_length": None, "max_steps": 3} | options),
        peft_config=policy.lora_config(r=4),
    )


def judgement_trainer(policy, rows, processing_class, out, **options) -> KTOTrainer:
    return KTOTrainer(
        model=policy,
        processing_class=processing_class,
        train_dataset=rows,
        args=KTOConfig(output_dir=str(out), **STEP | {"max_length": None, "max_steps": 3} | options),
        peft_config=policy.lora_config(r=4),
    )


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize(
    ("trainer_for", "rows", "names"),
    [
        (preference_trainer, preferences, ("loss", "rewards/margins")),
        (judgement_trainer, judged, ("loss", "kl")),
    ],
    ids=["dpo", "kto"],
)
@pytest.mark.parametrize("family", TWO)
def test_ids_and_a_column_of_images_train_alike(
    family, trainer_for, rows, names, precompute, policy_for, tmp_path
):
    runs = []
    for inside in (True, False):
        policy = policy_for(family)
        given = rows(square("cat"))
        dataset = carried(policy, given) if inside else Dataset.from_list(given)
        processing_class = policy.tokenizer if inside else policy.processing_class
        options = {"precompute_ref_log_probs": True} if inside and precompute else {}
        set_seed(0)
        trainer = trainer_for(policy, dataset, processing_class, tmp_path, **options)
        trainer.train()
        runs.append(logs(trainer, *names))
    assert len(runs[0]) == 3
    assert torch.tensor(runs[0]) == pytest.approx(torch.tensor(runs[1]), abs=2e-5)
