"""Tools and environments that return images: GRPO over several turns, each with an image of its own.

The tiny models have never seen a call, so their answers are forced, token by token, through the sampling that
trainers use; everything else is TRL's.
"""

import math
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version
from transformers import AutoProcessor, LogitsProcessor, LogitsProcessorList
from trl import GRPOConfig, GRPOTrainer

from hf_vlm_rl import UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.images import photo
from tests.trainers.runs import PLAIN, cat, cup, woman

TRL = Version(version("trl"))
pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(
        Version("1.16") > TRL, reason="TRL before 1.16 passes no images of tools to the model"
    ),
]

# Families whose images mean something else without their prompt; they are refused.
REFUSED = ("llava_onevision", "paligemma")
CHATS = tuple(family for family in FAMILIES if family not in REFUSED)

# Float32 on one thread, images and rows of different size in another grouping than stock's; log-probs are
# around -6.
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def call(x: int) -> str:
    return f'<tool_call>\n{{"name": "zoom", "arguments": {{"x": {x}}}}}\n</tool_call>'


# What the rows of each turn say; a row that has answered is in no later turn.
SCRIPT = [
    [call(0), call(1), "I look.\n" + call(2), "A cup."],
    [call(3), call(4), "No."],
    ["A cat.", "Yes."],
]


class Forced(LogitsProcessor):
    def __init__(self, answers: list[list[int]], prompt: int):
        self.answers, self.prompt = answers, prompt

    def __call__(self, input_ids, scores):
        step = input_ids.shape[1] - self.prompt
        for row, answer in enumerate(self.answers):
            scores[row] = -math.inf
            scores[row, answer[min(step, len(answer) - 1)]] = 0.0
        return scores


def force(policy, script) -> None:
    """Let `generate` of a policy say what the script says, turn by turn."""
    processing, turns, generate = policy.processing_class, iter(script), policy.generate
    # What the template has between the beginning of an answer and its text.
    lead = " " if policy.family.model_type in ("idefics3", "smolvlm") else ""

    def forced(**kwargs):
        texts = [lead + text for text in next(turns)]
        ids = processing.tokenizer(texts, add_special_tokens=False)["input_ids"]
        answers = [[*each, processing.eos_token_id] for each in ids]
        assert len(answers) == len(kwargs["input_ids"])
        forcing = Forced(answers, kwargs["input_ids"].shape[1])
        return generate(**kwargs, logits_processor=LogitsProcessorList([forcing]))

    policy.generate = forced


def picture(x: int):
    return [woman(), cup(), cat(), photo("rocket", (84, 140)), photo("coffee", (112, 112))][x]


def zoom(x: int) -> list:
    """Look closer.

    Args:
        x: Where to look.
    """
    return [{"type": "text", "text": f"Part {x}:"}, {"type": "image", "image": picture(x)}]


class Environment:
    def reset(self, **columns):
        return None

    def zoom(self, x: int) -> list:
        """Look closer.

        Args:
            x: Where to look.
        """
        return zoom(x)


def rows(images: bool = True) -> list[dict]:
    texts = ("What is it?", "Is it a cat?")
    if not images:
        return [{"prompt": [{"role": "user", "content": text}]} for text in texts]
    return [
        {"prompt": [{"role": "user", "content": text}], "images": [image]}
        for text, image in zip(texts, (cup(), woman()), strict=True)
    ]


class Run:
    """One step of GRPO with forced answers; what was said, and the log-probs of its update."""

    def __init__(self, policy, tmp_path, data, script=SCRIPT, generations=2, **options):
        from datasets import Dataset

        policy.processing_class.enable_tools()
        force(policy, script)
        self.completions, self.prompts, self.scored = [], [], []
        batch = {"per_device_train_batch_size": 4, "steps_per_generation": 1, "num_generations": generations}
        self.trainer = GRPOTrainer(
            model=policy,
            processing_class=policy.processing_class,
            reward_funcs=self.reward,
            args=GRPOConfig(
                output_dir=str(tmp_path),
                **PLAIN | batch | {"learning_rate": 1e-4},
                max_completion_length=1500,
                max_steps=1,
                shuffle_dataset=False,
            ),
            train_dataset=Dataset.from_list(data),
            **options,
        )
        score = self.trainer._get_per_token_logps_and_entropies

        def spied(model, ids, mask, keep, *args, **kwargs):
            output = score(model, ids, mask, keep, *args, **kwargs)
            self.scored += [
                (row[seen.bool()], logps[seen[-keep:].bool()].detach())
                for row, seen, logps in zip(ids, mask, output[0], strict=True)
            ]
            return output

        self.trainer._get_per_token_logps_and_entropies = spied
        self.trainer.train()

    def reward(self, prompts, completions, **columns):
        self.prompts, self.completions = prompts, completions
        return [float(len(completion)) for completion in completions]

    def conversations(self) -> list[list[dict]]:
        return [
            [_blocks(message) for message in [*prompt, *completion]]
            for prompt, completion in zip(self.prompts, self.completions, strict=True)
        ]


def _blocks(message: dict) -> dict:
    content = message["content"]
    return message | {"content": [{"type": "text", "text": content}] if isinstance(content, str) else content}


def stock_log_probs(bare, processor, conversation, tools) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids of a whole conversation, and the log-prob of each but the first, by one stock forward."""
    batch = processor.apply_chat_template(
        [conversation],
        tools=tools,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"return_mm_token_type_ids": True},
    )
    with torch.no_grad():
        logits = bare(**batch).logits[0]
    ids = batch["input_ids"][0]
    return ids, logits[:-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]


def check_against_stock(run, bare, processor, tools) -> None:
    assert len(run.scored) == len(run.completions) == 4
    stock = [stock_log_probs(bare, processor, each, tools) for each in run.conversations()]
    for ids, logps in run.scored:
        expected = next(values for whole, values in stock if torch.equal(whole[: len(ids)], ids))
        torch.testing.assert_close(logps, expected[: len(ids) - 1][-len(logps) :], **CLOSE)


@pytest.fixture
def processor_with_tools(checkpoint, policy_for):
    """`processor_with_tools(policy)`: the stock processor, with the template that the policy's has."""

    def load(policy):
        processor = AutoProcessor.from_pretrained(policy.name_or_path, padding_side="left")
        processor.chat_template = policy.processing_class.chat_template
        return processor

    return load


@pytest.fixture
def fresh(checkpoint, store):
    """`fresh(family)`: a policy with a processing class of its own, which a test may change."""
    from hf_vlm_rl import AutoVLMPolicy

    return lambda family: AutoVLMPolicy.from_pretrained(
        checkpoint(family), dtype="float32", image_store=store
    ).eval()


@pytest.mark.parametrize("family", CHATS)
def test_log_probs_over_three_turns_are_those_of_one_stock_forward(
    family, fresh, bare_for, tmp_path, processor_with_tools
):
    policy = fresh(family).freeze()
    run = Run(policy, tmp_path, rows(), tools=[zoom])
    said = [[message["role"] for message in completion] for completion in run.completions]
    turn = ["assistant", "tool"]
    assert said == [[*turn, *turn, "assistant"]] * 2 + [[*turn, "assistant"], ["assistant"]]
    check_against_stock(run, bare_for(family), processor_with_tools(policy), [zoom])
    # Two in the prompts, and three more that tools returned, in all turns and passes.
    assert policy.sharing_report()["images_encoded"] == 5


# Three rows look at the same part first, two of them at another one then, and say something else.
NESTED = [[call(0), call(0), call(0), "A cup."], [call(3), call(3), "No."], ["A cat.", "Yes."]]


@pytest.mark.parametrize("family", ["internvl", "qwen3_vl"])
def test_rows_share_what_they_begin_with_up_to_the_turn_at_which_they_part(
    family, fresh, bare_for, tmp_path, processor_with_tools
):
    """A tree: an image that a tool returned to some of the rows is computed once for these."""
    policy = fresh(family).freeze()
    run = Run(policy, tmp_path, rows()[:1], NESTED, generations=4, tools=[zoom])
    check_against_stock(run, bare_for(family), processor_with_tools(policy), [zoom])
    # Equal calls return equal images, so that equal ids mean equal tokens.
    texts = [ids.tolist() for ids, _ in run.scored]
    once = {tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)}
    report = policy.sharing_report()
    assert report["not_shared"] == {}
    # Beginnings of answers that are alike by chance are computed for each row.
    assert len(once) <= report["tokens_computed"] <= 1.05 * len(once)
    assert report["tokens"] > 2 * report["tokens_computed"]


@pytest.mark.parametrize("family", ["internvl", "qwen3_vl"])
@pytest.mark.parametrize("images", [True, False])
def test_environments(family, images, fresh, bare_for, tmp_path, processor_with_tools):
    policy = fresh(family)
    run = Run(policy, tmp_path, rows(images), environment_factory=Environment)
    check_against_stock(run, bare_for(family), processor_with_tools(policy), [Environment().zoom])


@pytest.mark.parametrize("family", REFUSED)
def test_images_that_need_their_prompt_are_refused(family, fresh):
    processing = fresh(family).processing_class
    with pytest.raises(UnsupportedModelError, match=f"without their prompts, for a {family} model"):
        processing.image_processor(images=[woman()], return_tensors="pt")
