"""lmms-eval runs its own code on a policy: tasks of local files, with images, several images and choices."""

import os
import subprocess
import sys
import tomllib
import warnings
from importlib import import_module
from importlib.metadata import version

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model

from tests.documents.pages import ROOT
from tests.images import photo

pytest.importorskip("lmms_eval", reason="lmms-eval is not installed")

from lmms_eval.evaluator import simple_evaluate
from lmms_eval.models import MODEL_REGISTRY_V2, get_model
from lmms_eval.tasks import TaskManager
from lmms_eval.tasks.mmmu.utils import parse_open_response

from hf_vlm_rl import AdapterCardData, save_adapter
from hf_vlm_rl.cli.commands import main
from hf_vlm_rl.evaluation import EvaluationResult, compare, from_lmms
from hf_vlm_rl.evaluation.estimates import mean_over_prompts
from hf_vlm_rl.evaluation.lmms import ChatPolicy, SimplePolicy, manifest

pytestmark = pytest.mark.slow

FAMILY = "qwen2_5_vl"
CHOICES = ["a cup of coffee", "a cat", "an astronaut"]
FUNCTIONS = """
from lmms_eval.tasks.mmmu.utils import mmmu_aggregate_results, mmmu_process_results


def images(doc):
    return [image.convert("RGB") for image in doc["images"]]


def messages(doc):
    blocks = [{"type": "text", "text": "First this:"}]
    for image in images(doc):
        blocks.append({"type": "image", "url": image})
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": doc["question"]}]}]


def scores(doc, results):
    length = len(results[0])
    named = {"score": length, "of": doc["question"]}
    category = {"alone": length} if doc["label"] == 1 else {"other": length}
    others = {"total": length, "text": results[0], "errors": length}
    return {"length": length, "named": named} | category | others


def named_mean(values):
    return sum(value["score"] for value in values) / len(values)


def total(values):
    return sum(values)


def longest(values):
    return len(max(values, key=len))
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
metadata: {{version: 1.5}}
metric_list:
  - metric: {metric}
    aggregation: mean
    higher_is_better: true
"""
GENERATE = "doc_to_target: answer\ngeneration_kwargs: {max_new_tokens: 6, temperature: 0, until: ['zzz']}"
SCORES = "\nprocess_results: !function functions.scores"
MESSAGES = "doc_to_messages: !function functions.messages\n" + GENERATE
MMMU = GENERATE + "\nprocess_results: !function functions.mmmu_process_results"
CHOOSE = "doc_to_target: label\ndoc_to_choice: choices"
SHARE = """
  - {metric: mmmu_acc, aggregation: !function functions.mmmu_aggregate_results, higher_is_better: true}
"""
# Numbers of rows, numbers inside of what is said of rows, and others that are no means of rows.
METRICS = """
  - {metric: named, aggregation: !function functions.named_mean, higher_is_better: true}
  - {metric: alone, aggregation: mean, higher_is_better: true}
  - {metric: other, aggregation: mean, higher_is_better: true}
  - {metric: total, aggregation: !function functions.total, higher_is_better: true}
  - {metric: text, aggregation: !function functions.longest, higher_is_better: true}
  - {metric: errors, aggregation: mean, higher_is_better: false}
"""
FILTERS = """
filter_list:
  - {name: whole, filter: [{function: take_first}]}
  - {name: lower, filter: [{function: lowercase}, {function: take_first}]}
"""


def rows() -> list[dict]:
    cat, cup = photo("cat", (96, 96)), photo("coffee", (128, 64))
    common = {"question_type": "open", "options": "[]", "id": "validation_Art_1"}
    common |= {"choices": CHOICES, "answer": "no answer of a random model"}
    return [
        {"question": "What is it?", "images": [cat], "label": 1} | common,
        {"question": "Compare them.", "images": [cup, cat], "label": 0} | common,
        {"question": "What is in the image?", "images": [cup], "label": 0} | common,
    ]


def write_tasks(folder, lines: list[dict]) -> str:
    """Tasks of local files about `lines`."""
    folder.mkdir()
    data = folder / "rows.parquet"
    Dataset.from_list(lines).to_parquet(data)
    (folder / "functions.py").write_text(FUNCTIONS)
    for name, kind, more, metric, metrics in (
        ("local_answers", "generate_until", GENERATE, "exact_match", ""),
        ("local_messages", "generate_until", MESSAGES, "exact_match", ""),
        ("local_choices", "multiple_choice", CHOOSE, "acc", ""),
        ("local_filters", "generate_until", GENERATE + FILTERS, "exact_match", ""),
        ("local_mmmu", "generate_until", MMMU, "exact_match", SHARE),
        ("local_scores", "generate_until", GENERATE + SCORES, "length", METRICS),
    ):
        text = TASK.format(name=name, kind=kind, more=more, metric=metric, data=data) + metrics.lstrip("\n")
        (folder / f"{name}.yaml").write_text(text)
    return str(folder)


@pytest.fixture
def tasks(tmp_path):
    return TaskManager(include_path=write_tasks(tmp_path / "tasks", rows()), include_defaults=False)


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


def evaluated(model, tasks, *names: str) -> EvaluationResult:
    return from_lmms(simple_evaluate(model=model, tasks=list(names), task_manager=tasks, bootstrap_iters=0))


def answers_of(policy) -> list[str]:
    return [policy.chat(row["question"], row["images"], max_new_tokens=6, do_sample=False) for row in rows()]


def run_eval(*arguments: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "hf_vlm_rl.cli", "eval", *arguments, "--device", "cpu", "--limit", "3"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_command_shows_what_an_adapter_lost_and_its_card_says_so(checkpoint, policy_for, tmp_path):
    policy = policy_for(FAMILY)
    # The base is right about the first and the last row.
    said = answers_of(policy)
    lines = [row | {"answer": text} for row, text in zip(rows(), (said[0], "else", said[2]), strict=True)]
    folder = write_tasks(tmp_path / "tasks", lines)
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False))
    model.save_pretrained(tmp_path / "adapter")
    lost = sum(new != old for new, old in zip(answers_of(model.get_base_model()), said, strict=True))
    assert lost == 3  # or the adapter changes nothing here
    lmms = ["--lmms", "local_answers,local_messages", "--lmms-folder", folder, "--batch-size", "2"]
    printed = run_eval(str(checkpoint(FAMILY)), *lmms, "--out", str(tmp_path / "before"))
    before = EvaluationResult.load(tmp_path / "before" / "result.json")
    assert str(before) in printed
    assert "| local_answers exact_match | 3 | 0.667 [" in printed
    assert "6 rows, 1 completion(s) each; [95 %]." in printed
    assert "What is it?" in (tmp_path / "before" / "result.html").read_text()
    compared = ["--before", str(tmp_path / "before" / "result.json"), "--out", str(tmp_path / "after")]
    printed = run_eval(str(tmp_path / "adapter"), *lmms, *compared)
    after = EvaluationResult.load(tmp_path / "after" / "result.json")
    comparison = compare(before, after)
    assert str(comparison) in printed
    change = comparison.rewards["local_answers exact_match"]
    assert (change.before.value, change.after.value) == (pytest.approx(2 / 3), 0.0)
    assert (change.better, change.worse, change.p_value) == (0, 2, 0.5)
    low, high = change.difference.interval
    assert low < -2 / 3 < high
    assert said[0] in (tmp_path / "after" / "comparison.html").read_text()
    card = AdapterCardData(summary="Reads.", evaluations=comparison.evaluations())
    save_adapter(model, tmp_path / "card", card=card, base_model="user/base")
    page = (tmp_path / "card" / "README.md").read_text()
    name = f"local_answers (lmms-eval {version('lmms-eval')}, version 1.5)"
    assert f"| {name} | exact_match | 3 | 0.6667 [" in page
    assert f"name: {name}" in page


def test_a_reward_is_each_metric_of_which_rows_have_numbers(policy_for, tasks):
    policy = policy_for(FAMILY)
    lengths = [float(len(text)) for text in answers_of(policy)]
    with pytest.warns(UserWarning, match="Left out of lmms-eval's numbers") as warned:
        result = evaluated(ChatPolicy(policy=policy), tasks, "local_answers", "local_scores")
    missing = (None,) * 3
    expected = {
        "local_answers exact_match": (0.0, 0.0, 0.0, *missing),
        "local_scores length": (*missing, *lengths),
        "local_scores named": (*missing, *lengths),
        "local_scores alone": (*missing, lengths[0], None, None),
        "local_scores other": (*missing, None, *lengths[1:]),
    }
    assert {
        name: tuple(value for (value,) in each.values) for name, each in result.rewards.items()
    } == expected
    assert result.rewards["local_scores length"].mean == mean_over_prompts([[each] for each in lengths])
    (message,) = [str(each.message) for each in warned if "Left out" in str(each.message)]
    assert f"local_scores total = {int(sum(lengths))}" in message
    assert "local_scores text" in message
    assert "local_scores errors" in message
    assert [row.completions[0] for row in result.rows] == answers_of(policy) * 2
    assert [row.prompt for row in result.rows] == [row["question"] for row in rows()] * 2


def test_mmmu_has_a_number_for_each_row_by_its_own_code(policy_for, tmp_path, capsys):
    policy = policy_for(FAMILY)
    said = answers_of(policy)
    # Numbers and texts, in an order that changes from run to run.
    parsed = max((each for each in parse_open_response(said[1]) if isinstance(each, str)), key=len)
    lines = [row | {"answer": text} for row, text in zip(rows(), ("else", parsed, "else"), strict=True)]
    manager = TaskManager(include_path=write_tasks(tmp_path / "tasks", lines), include_defaults=False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "error", message="Left out"
        )  # as for what MMMU submits and does not aggregate
        result = evaluated(ChatPolicy(policy=policy), manager, "local_mmmu")
    values = {name: each.values for name, each in result.rewards.items()}
    assert values == {"local_mmmu mmmu_acc": ((0.0,), (1.0,), (0.0,))}
    assert capsys.readouterr().out.count("Overall-Art") == 1  # lmms-eval's own


def test_filters_have_a_reward_each_and_choices_theirs(policy_for, tasks):
    policy = policy_for(FAMILY)
    filtered = evaluated(ChatPolicy(policy=policy), tasks, "local_filters")
    names = ["local_filters exact_match,whole", "local_filters exact_match,lower"]
    assert (list(filtered.rewards), filtered.n) == (names, 3)
    model = SimplePolicy(policy=policy)
    numbers, _ = samples(model, tasks, "local_choices")
    chosen = evaluated(SimplePolicy(policy=policy), tasks, "local_choices")
    assert chosen.rewards["local_choices acc"].mean.value == pytest.approx(numbers["acc,none"])


def test_rows_of_other_documents_or_versions_are_not_compared(policy_for, tasks, tmp_path):
    policy = policy_for(FAMILY)

    def answered(manager: TaskManager) -> EvaluationResult:
        return evaluated(ChatPolicy(policy=policy), manager, "local_answers")

    result = answered(tasks)
    assert compare(result, answered(tasks)).rewards
    folder = write_tasks(tmp_path / "others", [row | {"question": "Why?"} for row in rows()])
    newer = write_tasks(tmp_path / "newer", rows())
    task = tmp_path / "newer" / "local_answers.yaml"
    task.write_text(task.read_text().replace("version: 1.5", "version: 1.6"))
    for changed in (folder, newer):
        others = TaskManager(include_path=changed, include_defaults=False)
        with pytest.raises(ValueError, match="or version of lmms-eval"):
            compare(result, answered(others))
    with pytest.raises(ValueError, match="Got no samples of lmms-eval"):
        from_lmms({"results": {}})


@pytest.mark.parametrize(
    ("tasks_asked", "message"),
    [
        ("local_answers,locl", "Got the tasks ['locl']"),
        ("local_choices", "likelihood need --force-simple"),
    ],
)
def test_what_the_command_refuses(tasks_asked, message, checkpoint, tmp_path, capsys):
    folder = write_tasks(tmp_path / "tasks", rows())
    asked = ["--lmms", tasks_asked, "--lmms-folder", folder, "--device", "cpu"]
    assert main(["eval", str(checkpoint(FAMILY)), *asked]) == 1
    assert message in capsys.readouterr().err
    assert main(["eval", str(checkpoint(FAMILY)), *asked, "--force-simple", "--lmms", "local_choices"]) == 0
    assert "| local_choices acc | 3 | " in capsys.readouterr().out
