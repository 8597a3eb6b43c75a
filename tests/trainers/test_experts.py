"""Stock trainers on mixtures of experts: with the routers' loss, with experts adapted, in 4 bits."""

import inspect
import math

import pytest
import torch
from trl import GRPOConfig

from tests.loading.adapters.models import quantised
from tests.mixtures import DECODERS
from tests.trainers.runs import flat, grpo, logs, mixture, parameters, preferences, sft, split_by_change

pytestmark = pytest.mark.trl

GRPO_HAS_ROUTER_LOSS = "router_aux_loss_coef" in inspect.signature(GRPOConfig).parameters
needs_router_loss = pytest.mark.skipif(not GRPO_HAS_ROUTER_LOSS, reason="GRPO of this TRL has no router loss")


@needs_router_loss
@pytest.mark.parametrize("coefficient", [0.0, 0.5])
def test_grpo_adds_the_routers_loss_and_shares_no_prompts_in_its_updates(coefficient, policy_for, tmp_path):
    runs = []
    for sharing in (True, False):
        policy = policy_for("qwen3_vl_moe")
        policy.base_model.sharing.mode = sharing
        torch.manual_seed(0)
        config = policy.lora_config(r=4, experts=True)
        options = {"router_aux_loss_coef": coefficient, "learning_rate": 1e-4}
        trainer = grpo(policy, mixture("qwen3_vl_moe"), tmp_path, peft=config, **options)
        before = parameters(trainer.model)
        trainer.train()
        assert split_by_change(trainer.model, before) == (set(), set())
        runs.append((logs(trainer, "loss", "grad_norm"), policy.sharing_report()))
        losses = flat(trainer, "aux_loss") if coefficient else []
        assert len(losses) == (3 if coefficient else 0)
        assert all(loss > 0 for loss in losses)
    for shared, plain in zip(runs[0][0], runs[1][0], strict=True):
        assert shared == pytest.approx(plain, abs=1e-5, rel=1e-3)
    report = runs[0][1]
    assert report["tokens"] > 0  # log-probs of the rollout are asked for without the loss
    assert report["not_shared"].get("the caller passes output_router_logits", 0) == (3 if coefficient else 0)


def test_sft_adds_the_routers_loss_that_the_config_asks_for(policy_for, tmp_path):
    rows = [{**row, "completion": row["chosen"]} for row in preferences("qwen3_vl_moe")]
    rows = [{name: row[name] for name in ("prompt", "completion", "images")} for row in rows]
    losses = []
    for asked in (False, True):
        policy = policy_for("qwen3_vl_moe")
        text = policy.config.get_text_config()
        text.output_router_logits, text.router_aux_loss_coef = asked, 0.5
        options = {"router_aux_loss_coef": 0.5 if asked else 0.0} if GRPO_HAS_ROUTER_LOSS else {}
        config = policy.lora_config(r=4, experts=True)
        trainer = sft(policy, rows, tmp_path, peft=config, max_steps=1, learning_rate=0.0, **options)
        trainer.train()
        losses.append(flat(trainer, "loss")[0])
    # Balanced routers have a loss of about one for each expert that is chosen.
    assert 0.5 < losses[1] - losses[0] < 4


def test_grpo_trains_lora_on_a_decoder_in_four_bits(checkpoint, tmp_path):
    pytest.importorskip("bitsandbytes", reason="the extra `quant` is not installed")
    with pytest.warns(UserWarning, match="fused parameters"):
        policy = quantised(checkpoint("qwen3_5_moe"))
    config = policy.lora_config(r=4, experts=False)
    options = {"router_aux_loss_coef": 0.5} if GRPO_HAS_ROUTER_LOSS else {}
    trainer = grpo(policy, mixture("qwen3_5_moe"), tmp_path, peft=config, **options)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    trained = [name for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    assert len(trained) == 2 * len(DECODERS["qwen3_5_moe"].layers)
    assert all(math.isfinite(loss) for loss in flat(trainer, "loss"))
