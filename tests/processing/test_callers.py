"""TRL's trainers with vLLM and no rollout function stop at the first prompt with an image, before a step.

The engines are stand-ins that fail when they are asked: TRL hands them wrong prompts.
"""

import pytest
from datasets import Dataset
from transformers import TrainerCallback
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer, online_dpo_trainer
from trl.trainer import grpo_trainer, rloo_trainer

from tests.images import photo
from tests.trainers.runs import PLAIN, by_ids, grpo, parameters, rloo, square, user

pytestmark = pytest.mark.trl
FAMILY = "qwen2_5_vl"
IMAGE = 3 * [{"prompt": user("What is it?"), "images": [square("cat")]}]
TEXT = 3 * [{"prompt": user("Say hello to the user.")}]


class NeverAsked:
    """An engine that is never asked anything but to load the policy's weights."""

    def __init__(self, **kwargs):
        self.model = kwargs["model"]

    def sync_weights(self):
        pass

    def generate(self, prompts, images, num_generations, profiler=None):
        pytest.fail("vLLM was asked")


class AnswersText(NeverAsked):
    """An engine that gives every prompt the same answer."""

    def generate(self, prompts, images, num_generations, profiler=None):
        answer = list(range(20, 25))
        logprobs = [[[-1.0]] * len(answer)] * len(prompts)
        return prompts, [answer for _ in prompts], logprobs, [[[token] for token in answer]] * len(prompts)


@pytest.fixture
def engine(monkeypatch):
    """`engine(kind)`: TRL's trainers start an engine of that kind."""

    def use(kind):
        for module in (grpo_trainer, rloo_trainer):
            monkeypatch.setattr(module, "VLLMGeneration", kind)

    return use


@pytest.mark.parametrize("mode", ["colocate", "server"])
@pytest.mark.parametrize("run", [grpo, rloo])
def test_a_prompt_with_an_image_is_refused_before_a_step(run, mode, engine, policy_for, tmp_path):
    engine(NeverAsked)
    policy = policy_for(FAMILY)
    # In server mode, GRPO asks the server for its settings when it is made.
    options = {"vllm_importance_sampling_correction": False} if run is grpo else {}
    trainer = run(policy, IMAGE, tmp_path, use_vllm=True, vllm_mode=mode, **options)
    before = parameters(policy)
    with pytest.raises(ValueError, match=r"use_vllm.*(vllm_rollout|policy\.serving)"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert all((value == before[name]).all() for name, value in policy.named_parameters())


def test_grpo_says_what_to_pass(engine, policy_for, tmp_path):
    engine(NeverAsked)
    trainer = grpo(policy_for(FAMILY), IMAGE, tmp_path, use_vllm=True, vllm_mode="colocate")
    with pytest.raises(ValueError, match=r"Expected rollout_func=vllm_rollout, from hf_vlm_rl\.vllm"):
        trainer.train()


def test_rloo_has_no_rollout_function_and_is_sent_elsewhere(engine, policy_for, tmp_path):
    engine(NeverAsked)
    trainer = rloo(policy_for(FAMILY), IMAGE, tmp_path, use_vllm=True, vllm_mode="colocate")
    with pytest.raises(ValueError, match=r"It takes no rollout function.*policy\.serving.*or use_vllm=False"):
        trainer.train()


def test_evaluation_is_refused_too(engine, policy_for, tmp_path):
    engine(NeverAsked)
    trainer = grpo(policy_for(FAMILY), TEXT, tmp_path, use_vllm=True, vllm_mode="colocate", eval_rows=IMAGE)
    with pytest.raises(ValueError, match="rollout_func=vllm_rollout"):
        trainer.evaluate()


def test_online_dpo_is_refused(monkeypatch, policy_for, tmp_path):
    engine = {"LLM": NeverAsked, "SamplingParams": dict, "is_vllm_available": lambda: True}
    for name, value in engine.items():
        monkeypatch.setattr(online_dpo_trainer, name, value, raising=False)
    monkeypatch.setattr(OnlineDPOTrainer, "_move_model_to_vllm", lambda self: None)
    policy = policy_for(FAMILY)
    trainer = OnlineDPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=by_ids,
        args=OnlineDPOConfig(
            output_dir=str(tmp_path),
            use_vllm=True,
            vllm_mode="colocate",
            max_steps=1,
            max_length=512,
            **PLAIN,
        ),
        train_dataset=Dataset.from_list([{"prompt": user("What is it?"), "image": photo("cat", (96, 96))}]),
    )
    with pytest.raises(ValueError, match="OnlineDPOTrainer has use_vllm=True"):
        trainer.train()


def test_text_alone_is_sent_as_ever(engine, policy_for, tmp_path):
    engine(AnswersText)
    policy = policy_for(FAMILY)
    trainer = grpo(policy, TEXT, tmp_path, use_vllm=True, vllm_mode="colocate", max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_a_trainer_without_vllm_is_let_through(policy_for, tmp_path):
    trainer = grpo(policy_for(FAMILY), IMAGE, tmp_path, max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_a_callback_may_ask_the_policy_itself(engine, policy_for, tmp_path):
    engine(AnswersText)
    policy = policy_for(FAMILY)
    answers = []

    class Ask(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            answers.append(policy.chat(user("What is it?"), [square("cat")], max_new_tokens=2))

    trainer = grpo(policy, TEXT, tmp_path, use_vllm=True, vllm_mode="colocate", max_steps=1)
    trainer.add_callback(Ask())
    trainer.train()
    assert len(answers) == 1
