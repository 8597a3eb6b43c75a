"""Stock GRPO that knows nothing but ids, with images, through a front and the stand-in for `vllm serve`."""

from importlib.metadata import version

import pytest
from datasets import Dataset
from packaging.version import Version
from trl.trainer import grpo_trainer

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.front import serving
from tests.trainers.runs import flat, mixture
from tests.vllm.fake_server import FakeClient, FakeServer
from tests.vllm.looking import photo_of
from tests.vllm.stand_in import StandIn, listening

pytestmark = pytest.mark.trl


@pytest.fixture
def through(with_vllm, monkeypatch):
    """`through(policy, url, **options)`: a GRPO trainer with `policy.tokenizer` and a server at `url`."""
    made = []

    def trainer(policy, url, family="qwen2_5_vl", engine=FakeClient, **options):
        monkeypatch.setattr(grpo_trainer, "VLLMGeneration", engine)
        rows = Dataset.from_list([policy.tokenizer.with_tickets(row) for row in mixture(family)])
        settings = {"vllm_mode": "server", "vllm_server_base_url": url, "rollout": None}
        made.append(with_vllm(policy, rows, processing_class=policy.tokenizer, **settings | options))
        return made[-1]

    yield trainer
    for each in made:
        each.vllm_generation.close()


@pytest.mark.parametrize("family", ["qwen2_5_vl", "internvl", "idefics3"])
def test_three_steps_score_what_was_sampled(family, policy_for, through, monkeypatch):
    policy = policy_for(family)
    stand_in = StandIn(None)
    with listening(stand_in) as address, policy.serving(address, compare_every=1) as url:
        trainer = through(policy, url, family, peft=policy.lora_config(r=4, target="all"))
        stand_in.engine = trainer.vllm_generation
        trainer.train()
    differences = flat(trainer, "sampling/sampling_logp_difference/max")
    assert len(differences) == 3
    assert max(differences) < 1e-4
    assert sum(len(body.get("content_parts", [])) for body in stand_in.asked) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            r"GRPOTrainer has use_vllm set and this tokenizer.*got HTTPError: HTTP.*policy\.serving",
        ),
        ({"vllm_mode": "colocate"}, r"got no server.*read_tickets"),
        ({"vllm_server_base_url": "http://127.0.0.1:9"}, "got URLError"),
    ],
)
def test_a_server_that_reads_no_tickets_is_refused(options, message, policy_for, through):
    policy = policy_for("qwen2_5_vl")
    with listening(StandIn(None)) as address:
        trainer = through(policy, address, engine=FakeServer, **options)
        with pytest.raises(ValueError, match=message):
            trainer.train()
    assert trainer.state.global_step == 0


def test_a_front_that_makes_other_images_is_refused(policy_for, through, checkpoint):
    policy = policy_for("qwen2_5_vl")
    other = AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"), min_pixels=28 * 28, max_pixels=28 * 28 * 4)
    with listening(StandIn(None)) as address, serving.serving(other, [address]) as url:
        trainer = through(policy, url)
        with pytest.raises(ValueError, match=r"images with other settings.*--max-pixels"):
            trainer.train()


def test_the_front_of_another_policy_is_refused(policy_for, through):
    policy = policy_for("qwen2_5_vl")
    with (
        listening(StandIn(None)) as address,
        policy_for("internvl").serving(address) as url,
        pytest.raises(ValueError, match=r"asked for its salt \d+, got \d+"),
    ):
        through(policy, url, engine=FakeServer).train()


def test_tools_need_what_the_loop_of_the_trainer_asks_for(checkpoint, through):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), dtype="float32")
    old = Version(version("trl")) < Version("1.16")
    error, message = (ImportError, "another row") if old else (ValueError, "policy.config.max_position_emb")
    with listening(StandIn(None)) as address, policy.serving(address) as url:
        policy.processing_class.enable_tools()
        trainer = through(policy, url, environment_factory=photo_of(policy.tokenizer))
        with pytest.raises(error, match=message):
            trainer.train()
    assert trainer.state.global_step == 0
