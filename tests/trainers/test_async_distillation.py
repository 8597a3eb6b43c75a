"""AsyncDistillationTrainer trains a policy on images, from an id; here without servers."""

from types import SimpleNamespace

import pytest
import trl
from packaging.version import Version

from hf_vlm_rl.processing.ids.fronts import check_servers
from tests.trainers.asynchronous import asynchronous, ended, results, without_aiohttp
from tests.trainers.runs import TWO

pytestmark = [pytest.mark.trl, pytest.mark.slow]
METRICS = Version(trl.__version__) < Version("1.15")


@pytest.fixture(scope="module")
def runs(checkpoint):
    """What a process that called `register()` saw: three runs of each family."""
    return results("async_distillation", TWO, checkpoint)


@pytest.mark.skipif(METRICS, reason="TRL before 1.15 counts operations of configs without parts alone")
@pytest.mark.parametrize("family", TWO)
def test_its_divergences_are_those_of_the_samples_by_themselves(family, runs):
    own = [run for run in runs if run["family"] == family]
    assert len(own) == 3
    for result in own:
        assert result["policy"]
        assert result["stayed"] == []
        assert result["images"] > 0
        # The dataloader is a batch ahead: the worker has given four, all of one size.
        first = result["divergences"][: len(result["divergences"]) // 4]
        assert result["jsd"][0] > 1e-2
        # In bfloat16, logits of one sample and of several are rounded otherwise.
        allowed = 5e-2 if result.get("bf16") else 1e-5
        assert result["jsd"][0] == pytest.approx(sum(first) / len(first), rel=allowed)


@pytest.mark.once
@pytest.mark.skipif(not METRICS, reason="TRL 1.15 and newer count those of configs with parts, too")
@pytest.mark.parametrize("package", ["async_grpo", "async_distillation"])
def test_older_trl_fails_after_its_first_step(package, checkpoint):
    done = ended(package, ("qwen2_5_vl",), checkpoint)
    assert done.returncode != 0
    assert "in compute_flops_per_token" in done.stderr
    assert "AttributeError" in done.stderr


def test_the_servers_of_its_teachers_have_to_read_tickets():
    without_aiohttp()
    _, config = asynchronous("async_distillation")
    urls = {"art": "http://localhost:1", "charts": "http://localhost:2"}
    trainer = SimpleNamespace(args=config("out", bf16=False, use_cpu=True, teacher_server_urls=urls))
    known = {trainer.args.vllm_server_base_url, urls["art"]}
    processing = SimpleNamespace(codec=SimpleNamespace(salt=7), image_processor=SimpleNamespace(to_dict=dict))
    with pytest.raises(ValueError, match=r"has teacher_server_urls\['charts'\] set .* at http://localhost:2"):
        check_servers(trainer, processing, known)
