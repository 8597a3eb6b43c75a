"""In rollout, reference and update the decoder gets image features where the placeholders are."""

import pytest
import torch
from transformers import set_seed

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import TWO, grpo, logs, mixture, square, user

pytestmark = pytest.mark.trl

PHASES = ("rollout", "reference", "update")


class Watch:
    """Records, by phase, the features that each row's placeholders were given by each forward."""

    def __init__(self, policy):
        self.features = {phase: [] for phase in PHASES}
        self._placeholder = policy.config.image_token_id
        self._embedding = policy.get_input_embeddings()
        self._ids = None
        policy.base_model.register_forward_pre_hook(self._take_ids, with_kwargs=True)
        policy.get_submodule(policy.family.language).register_forward_pre_hook(
            self._take_embeddings, with_kwargs=True
        )

    def _take_ids(self, module, args, kwargs):
        self._ids = args[0] if args else kwargs["input_ids"]

    def _take_embeddings(self, module, args, kwargs):
        if kwargs["inputs_embeds"].shape[:2] != self._ids.shape:
            return  # the self-check before sharing runs a few tokens of its own
        without_gradients = "rollout" if kwargs.get("use_cache") else "reference"
        phase = "update" if torch.is_grad_enabled() else without_gradients
        for ids, embeddings in zip(self._ids, kwargs["inputs_embeds"].detach(), strict=True):
            if len(ids) > 1:  # a cached decoding step has no placeholders
                self.features[phase].append(embeddings[ids == self._placeholder].clone())

    def distinct(self, phase: str) -> list[torch.Tensor]:
        found = []
        for features in self.features[phase]:
            if len(features) and not any(same(features, other) for other in found):
                found.append(features)
        return found

    def word(self) -> torch.Tensor:
        """What a placeholder is to a model that got no image."""
        return self._embedding(torch.tensor([self._placeholder])).detach()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_forward_of_grpo_sees_the_features_of_its_rows_images(family, policy_for, tmp_path):
    policy = policy_for(family)
    watch = Watch(policy)
    rows = mixture(family)
    trainer = grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), beta=0.1)
    trainer.train()
    with_images = sum(bool(row["images"]) for row in rows)
    seen = {phase: watch.distinct(phase) for phase in PHASES}
    assert {phase: len(found) for phase, found in seen.items()} == dict.fromkeys(PHASES, with_images)
    for features in seen["rollout"]:
        assert not torch.isclose(features, watch.word()).all(dim=-1).any()
        assert any(same(features, other) for other in seen["reference"])
        assert any(same(features, other) for other in seen["update"])
    if with_images < len(rows):
        for phase in PHASES:
            assert any(len(features) == 0 for features in watch.features[phase]), phase


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_that_differ_in_their_image_alone_get_other_features(family, policy_for, tmp_path):
    policy = policy_for(family)
    watch = Watch(policy)
    rows = [{"prompt": user("What?"), "images": [square(name)]} for name in ("cat", "coffee", "cat")]
    grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), beta=0.1).train()
    for phase in PHASES:
        assert len(watch.distinct(phase)) == 2


@pytest.mark.parametrize("family", TWO)
def test_other_images_in_the_dataset_give_other_log_probs(family, policy_for, tmp_path):
    entropies = []
    for name in ("cat", "coffee", "cat"):
        policy = policy_for(family)
        rows = [{"prompt": user("What?"), "images": [square(name)]}] * 3
        set_seed(11)
        trainer = grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), max_steps=1)
        trainer.train()
        entropies.append(logs(trainer, "entropy")[0][0])
    assert entropies[0] == entropies[2]
    assert abs(entropies[0] - entropies[1]) > 1e-3
