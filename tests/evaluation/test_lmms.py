"""lmms-eval runs its own code on a policy: tasks of local files, with images, several images and choices."""

import tomllib
from importlib import import_module

import pytest
import torch
from datasets import Dataset

from tests.documents.pages import ROOT
from tests.images import photo

pytest.importorskip("lmms_eval", reason="lmms-eval is not installed")

from lmms_eval.evaluator import simple_evaluate
from lmms_eval.models import MODEL_REGISTRY_V2, get_model
from lmms_eval.tasks import TaskManager

from hf_vlm_rl.evaluation.lmms import ChatPolicy, SimplePolicy, manifest

pytestmark = pytest.mark.slow

FAMILY = "qwen2_5_vl"
CHOICES = ["a cup of coffee", "a cat", "an astronaut"]
FUNCTIONS = """
def images(doc):
    return [image.convert("RGB") for image in doc["images"]]


def messages(doc):
    blocks = [{"type": "text", "text": "First this:"}]
    for image in images(doc):
        blocks.append({"type": "image", "url": image})
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": doc["question"]}]}]
"""
TASK = """
task: {name}
dataset_path: parquet
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_visual: !function functions.images
doc_to_text: "{{{{question}}}}"
{more}
metric_list:
  - metric: {metric}
    aggregation: mean
    higher_is_better: true
"""
GENERATE = "doc_to_target: answer\ngeneration_kwargs: {max_new_tokens: 6, temperature: 0, until: ['zzz']}"
MESSAGES = "doc_to_messages: !function functions.messages\n" + GENERATE
CHOOSE = "doc_to_target: label\ndoc_to_choice: choices"


def rows() -> list[dict]:
    cat, cup = photo("cat", (96, 96)), photo("coffee", (128, 64))
    common = {"choices": CHOICES, "answer": "no answer of a random model"}
    return [
        {"question": "What is it?", "images": [cat], "label": 1} | common,
        {"question": "Compare them.", "images": [cup, cat], "label": 0} | common,
        {"question": "What is in the image?", "images": [cup], "label": 0} | common,
    ]


@pytest.fixture
def tasks(tmp_path):
    data = tmp_path / "rows.parquet"
    Dataset.from_list(rows()).to_parquet(data)
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "functions.py").write_text(FUNCTIONS)
    for name, kind, more, metric in (
        ("local_answers", "generate_until", GENERATE, "exact_match"),
        ("local_messages", "generate_until", MESSAGES, "exact_match"),
        ("local_choices", "multiple_choice", CHOOSE, "acc"),
    ):
        text = TASK.format(name=name, kind=kind, more=more, metric=metric, data=data)
        (folder / f"{name}.yaml").write_text(text)
    return TaskManager(include_path=str(folder), include_defaults=False)


def samples(model, tasks, name: str) -> tuple[dict, list]:
    """The task's numbers, and for each document what the model answered."""
    results = simple_evaluate(model=model, tasks=[name], task_manager=tasks, bootstrap_iters=0)
    ordered = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
    return results["results"][name], [sample["resps"] for sample in ordered]


def test_the_entry_point_is_the_manifest():
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, name = entries["lmms_eval.models"]["hf_vlm_rl"].split(":")
    assert getattr(import_module(module), name) is manifest
    MODEL_REGISTRY_V2.register_manifest(manifest, overwrite=True)  # what lmms-eval does with an entry point
    assert get_model("hf_vlm_rl") is ChatPolicy
    assert get_model("hf_vlm_rl", force_simple=True) is SimplePolicy


@pytest.mark.parametrize("batch_size", [1, 3])
def test_answers_are_those_of_chat(batch_size, policy_for, tasks):
    policy = policy_for(FAMILY)
    _, answers = samples(SimplePolicy(policy=policy, batch_size=batch_size), tasks, "local_answers")
    expected = [
        policy.chat(row["question"], row["images"], max_new_tokens=6, do_sample=False) for row in rows()
    ]
    assert [text for ((text,),) in answers] == expected


def test_messages_keep_the_order_of_words_and_images(policy_for, tasks):
    policy = policy_for(FAMILY)
    _, answers = samples(ChatPolicy(policy=policy, batch_size=2), tasks, "local_messages")
    expected = []
    for row in rows():
        words = [{"type": "text", "text": text} for text in ("First this:", row["question"])]
        blocks = [words[0], *({"type": "image", "image": image} for image in row["images"]), words[1]]
        expected.append(policy.chat([{"role": "user", "content": blocks}], max_new_tokens=6, do_sample=False))
    assert [text for ((text,),) in answers] == expected


@pytest.mark.parametrize("batch_size", [1, 4])
def test_choices_have_the_stock_models_losses(batch_size, policy_for, bare_for, native_processor_for, tasks):
    model = SimplePolicy(policy=policy_for(FAMILY), batch_size=batch_size)
    numbers, answers = samples(model, tasks, "local_choices")
    stock, native = bare_for(FAMILY), native_processor_for(FAMILY)
    hits = []
    for row, given in zip(rows(), answers, strict=True):
        blocks = [{"type": "image"} for _ in row["images"]] + [{"type": "text", "text": row["question"]}]
        prompt = native.apply_chat_template([{"role": "user", "content": blocks}], add_generation_prompt=True)
        expected = []
        for choice in CHOICES:
            ends = native.tokenizer(f" {choice}", add_special_tokens=False)["input_ids"]
            inputs = native(text=[prompt], images=row["images"], return_tensors="pt")
            for name, value in inputs.items():
                if name in ("input_ids", "attention_mask", "mm_token_type_ids"):
                    more = {"input_ids": torch.tensor([ends]), "attention_mask": torch.ones(1, len(ends))}
                    end = more.get(name, torch.zeros(1, len(ends)))
                    inputs[name] = torch.cat([value, end.to(value.dtype)], 1)
            with torch.no_grad():
                logps = stock(**inputs).logits[0, -len(ends) - 1 : -1].log_softmax(-1)
            expected.append(-logps[range(len(ends)), ends].mean().item())
        assert [loss for ((loss, _),) in given] == pytest.approx(expected, rel=1e-5)
        hits.append(expected.index(min(expected)) == row["label"])
    accuracy = next(value for name, value in numbers.items() if name.startswith("acc,"))
    assert accuracy == pytest.approx(sum(hits) / 3)


def test_what_a_task_may_not_ask(policy_for, tasks):
    policy = policy_for(FAMILY)
    with pytest.raises(ValueError, match="Expected pretrained="):
        SimplePolicy()
    model = SimplePolicy(policy=policy)
    with pytest.raises(ValueError, match=r"generation_kwargs \['beams'\]"):
        simple_evaluate(
            model=model, tasks=["local_answers"], task_manager=tasks, gen_kwargs="beams=2", bootstrap_iters=0
        )
