"""Server mode: one request a prompt, with its images beside the ids, and options that must agree."""

from typing import ClassVar

import pytest
from trl.trainer import grpo_trainer

from hf_vlm_rl import AutoVLMPolicy, ImageError
from tests.trainers.runs import flat, mixture
from tests.vllm.fake_server import FakeServer

pytestmark = pytest.mark.trl

# The last two write marks between an image's tiles.
FAMILIES = ("qwen2_5_vl", "qwen3_vl", "internvl", "llava", "idefics3", "smolvlm")
DIFFERENCE = "sampling/sampling_logp_difference/max"
AREA = 28 * 28
SMALL = {"size": {"shortest_edge": 4 * AREA, "longest_edge": 9 * AREA}}


@pytest.fixture
def with_server(with_vllm, monkeypatch):
    """`with_server(policy, rows, server, **options)`: as `with_vllm`, in server mode."""
    made = []

    def trainer(policy, rows, server=FakeServer, **options):
        monkeypatch.setattr(grpo_trainer, "VLLMGeneration", server)
        made.append(with_vllm(policy, rows, vllm_mode="server", **options))
        return made[-1]

    yield trainer
    for each in made:
        each.vllm_generation.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_three_steps_score_what_was_sampled(family, policy_for, with_server):
    policy = policy_for(family)
    trainer = with_server(policy, mixture(family), peft=policy.lora_config(r=4, target="all"))
    trainer.train()
    differences = flat(trainer, DIFFERENCE)
    assert len(differences) == 3
    assert max(differences) < 1e-4


def test_each_prompt_is_asked_once_with_its_images(policy_for, with_server):
    trainer = with_server(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), max_steps=1)
    trainer.train()
    asked = trainer.vllm_generation.server.asked
    assert [body["sampling_params"]["n"] for body in asked] == [2, 2, 2]
    assert sorted(len(body.get("content_parts", [])) for body in asked) == [0, 1, 2]


def test_what_the_server_refuses_ends_the_run(policy_for, with_server):
    trainer = with_server(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"))
    trainer.vllm_generation.server.failures = 6 * [400]
    with pytest.raises(ImageError, match=r"^Row \d: vLLM at http.* answered 400 .*failed"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.fixture
def small(checkpoint):
    """A policy whose images have fewer tokens than the checkpoint's processor gives them."""
    return AutoVLMPolicy.from_pretrained(
        checkpoint("qwen2_5_vl"), dtype="float32", min_pixels=4 * AREA, max_pixels=9 * AREA
    )


def test_a_server_with_other_image_options_is_refused(small, with_server):
    trainer = with_server(small, mixture("qwen2_5_vl"))
    with pytest.raises(ValueError, match=r"Restart it with --mm-processor-kwargs '{.*\"longest_edge\": 7056"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_server_with_the_same_options_is_asked(small, with_server):
    class Started(FakeServer):
        processor_options = SMALL

    trainer = with_server(small, mixture("qwen2_5_vl"), Started, max_steps=1)
    trainer.train()
    assert max(flat(trainer, DIFFERENCE)) < 1e-4


def test_other_tokens_than_the_policys_are_refused(policy_for, with_server):
    class Longer(FakeServer):
        def replacements(self, images, of_prompt=None):
            return [[*ids, ids[0]] for ids in super().replacements(images, of_prompt)]

        def sample(self, seen, images, options=None):
            return super().sample([5, 6, 7], None)

    trainer = with_server(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), Longer)
    with pytest.raises(ImageError, match=r"^Row \d: vLLM saw another prompt.*--mm-processor-kwargs"):
        trainer.train()


def test_a_server_that_keeps_what_it_knows_of_images_is_refused(policy_for, with_server):
    class Forgetless(FakeServer):
        statuses: ClassVar = {"/reset_encoder_cache": 404}

    trainer = with_server(policy_for("qwen2_5_vl"), mixture("qwen2_5_vl"), Forgetless)
    with pytest.raises(
        ConnectionError, match=r"answered 404 to /reset_encoder_cache.*VLLM_SERVER_DEV_MODE=1"
    ):
        trainer.train()
