"""`generate` with caches of other kinds, compiled or not: the stock model's samples, token by token."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig, logging
from transformers.generation.configuration_utils import ALL_STATIC_CACHE_IMPLEMENTATIONS

from .cases import native, no_image, one_image, tickets, two_images

MODELS = ("internvl", "qwen2_5_vl", "gemma3")
# Rows end early and late: every fourth id ends one.
ENDS = list(range(40, 250, 4))
# Its tensors go to the host's memory by CUDA streams.
# transformers 5.23 takes "hybrid" for no choice.
STATIC = [name for name in ALL_STATIC_CACHE_IMPLEMENTATIONS if not name.startswith("offloaded")]


@pytest.fixture(autouse=True)
def quiet():
    """Some names of static caches are deprecated, and transformers says so."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(before)


def rows(images: bool) -> list:
    return [one_image(), two_images(), one_image()] if images else [no_image(), no_image()]


def generate(model, batch, placeholders, **settings) -> torch.Tensor:
    torch.manual_seed(0)
    return model.generate(
        **batch,
        max_new_tokens=12,
        pad_token_id=0,
        eos_token_id=ENDS,
        suppress_tokens=list(placeholders),
        **settings,
    )[:, batch["input_ids"].shape[1] :]


def samples(twins, images: bool, **settings) -> tuple[torch.Tensor, torch.Tensor]:
    """What the stock model samples, and what the policy does."""
    typed = "mm_token_type_ids" in twins.policy.family.token_types
    never = twins.policy.placeholder_ids
    stock = generate(twins.bare, native(twins.processor, rows(images), typed=typed), never, **settings)
    return stock, generate(twins.policy, tickets(twins.processing, rows(images)), never, **settings)


@pytest.mark.parametrize("images", [True, False], ids=["images", "text"])
@pytest.mark.parametrize("cache", STATIC)
@pytest.mark.parametrize("model_type", MODELS)
def test_static_caches_give_the_stock_models_samples(model_type, cache, images, twins):
    twins.policy.base_model.sharing.mode = True
    for sampled in (False, True):
        stock, ours = samples(twins, images, cache_implementation=cache, do_sample=sampled)
        assert torch.equal(ours, stock)
    report = twins.policy.sharing_report()
    assert report["not_shared"]["generate: cache_implementation is given"] == 2
    assert report["rows_kept"] == ({} if cache == "hybrid" else {"the cache is a StaticCache": 2})
    assert report["prompts"] == 0


@pytest.mark.parametrize("model_type", MODELS)
def test_the_dynamic_cache_may_be_asked_for_by_name(model_type, twins):
    twins.policy.base_model.sharing.mode = True
    stock, ours = samples(twins, True, do_sample=True, cache_implementation="dynamic")
    assert torch.equal(ours, stock)
    report = twins.policy.sharing_report()
    assert (report["prompts"], report["prompts_prefilled"]) == (3, 2)
    assert report["row_steps_run"] < report["row_steps"]


@pytest.mark.parametrize("model_type", MODELS)
def test_where_the_models_config_names_a_cache_each_row_has_its_prompt(model_type, twins, monkeypatch):
    twins.policy.base_model.sharing.mode = True
    monkeypatch.setattr(twins.policy.generation_config, "cache_implementation", "dynamic")
    stock, ours = samples(twins, True, do_sample=True)
    assert torch.equal(ours, stock)
    assert twins.policy.sharing_report()["not_shared"]["generate: cache_implementation is dynamic"] == 1


def compiled(twins, **settings) -> tuple[list[torch.Tensor], list[dict]]:
    """What both sample, and what torch compiled for each."""
    config = CompileConfig(backend="aot_eager", fullgraph=True, mode=None)
    config._compile_all_devices = True  # transformers compiles on CUDA alone, but in its own tests
    made, counted = [], []
    typed = "mm_token_type_ids" in twins.policy.family.token_types
    for model, batch in (
        (twins.bare, native(twins.processor, rows(True), typed=typed)),
        (twins.policy, tickets(twins.processing, rows(True))),
    ):
        torch._dynamo.reset()
        counters.clear()
        never = twins.policy.placeholder_ids
        made.append(
            generate(model, batch, never, cache_implementation="static", compile_config=config, **settings)
        )
        counted.append({name: dict(counters[name]) for name in ("stats", "graph_break")})
    return made, counted


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODELS)
def test_a_compiled_step_is_one_graph_with_the_stock_models_samples(model_type, twins):
    """`fullgraph`: torch raises where a step of the policy cannot be one graph."""
    (stock, ours), (theirs, found) = compiled(twins, do_sample=True)
    assert torch.equal(ours, stock)
    assert found == theirs
    assert found["stats"]["unique_graphs"] > 0
    assert not found["graph_break"]
