"""Encoded rows on their way: through `datasets.map`, a cache, another process; and into view."""

import os
import subprocess
import sys

import datasets
import pytest

from tests.conformance.cases import user
from tests.images import photo
from tests.scoring.runs import TWO, ppo, rows_of

pytestmark = pytest.mark.ppo

TRAIN = """
import sys, warnings, datasets, torch
from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel, RewardFunctionModel
from tests.scoring.runs import ppo
torch.set_num_threads(1)
warnings.simplefilter("ignore")
policy = AutoVLMPolicy.from_pretrained(sys.argv[1], dtype="float32")
value = AutoVLMValueModel.from_pretrained(
    sys.argv[1], dtype="float32", processing_class=policy.processing_class
)
seen = set()

def reward(prompts, completions, answer, **columns):
    seen.update((prompt[0]["content"][-1]["text"], own) for prompt, own in zip(prompts, answer))
    return [0.0] * len(answer)

rows = datasets.load_from_disk(sys.argv[2])
ppo(policy, rows, value, sys.argv[3], reward=reward, total_episodes=4).train()
print("SEEN", sorted(seen))
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", TWO)
def test_rows_mapped_by_two_processes_train_in_a_later_one(family, policy_for, checkpoint, tmp_path):
    questions = ["What is it?", "Who?", "How many?", "Hello."]
    pictures = [[photo("cat", (120, 120))], [photo("coffee", (224, 84))], [photo("rocket", (84, 224))], []]
    rows = datasets.Dataset.from_dict(
        {"images": pictures, "question": questions, "answer": ["a", "b", "c", "d"]},
        features=datasets.Features(
            {
                "images": datasets.List(datasets.Image()),
                "question": datasets.Value("string"),
                "answer": datasets.Value("string"),
            }
        ),
    )
    encode = policy_for(family).processing_class.encode_prompt
    mapped = rows.map(
        lambda row: encode(user(row["question"]), row["images"], answer=row["answer"]),
        num_proc=2,
        remove_columns=rows.column_names,
    )
    mapped.save_to_disk(tmp_path / "rows")
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(checkpoint(family)), str(tmp_path / "rows"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    expected = sorted(zip(questions, "abcd", strict=True))
    assert f"SEEN {expected}" in done.stdout


@pytest.mark.parametrize("family", TWO)
def test_generated_samples_are_shown_as_people_read_them(family, policy_for, value_for, tmp_path, capsys):
    policy = policy_for(family)
    rows = rows_of(policy, family)
    options = {"total_episodes": 4, "num_sample_generations": 1, "per_device_eval_batch_size": 1}
    trainer = ppo(policy, rows, value_for(family), tmp_path, eval_rows=rows.select([0]), **options)
    capsys.readouterr()
    trainer.generate_completions()
    shown = "".join(capsys.readouterr().out.split())
    ids = rows[0]["input_ids"]
    clean = policy.processing_class.codec.erase(ids)
    assert clean != ids
    told = policy.processing_class.tokenizer.decode(clean, skip_special_tokens=True)
    assert "Whatisthis?" in "".join(told.split())
    assert "Whatisthis?" in shown
    digits = policy.processing_class.tokenizer.decode(ids, skip_special_tokens=True)
    assert policy.processing_class.decode(ids, skip_special_tokens=True) == told != digits
