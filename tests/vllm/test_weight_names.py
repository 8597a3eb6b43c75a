"""Names of tower weights that transformers has shortened."""

from types import SimpleNamespace

import pytest
from torch import nn

from hf_vlm_rl.vllm import match_weight_names


class Mapper:
    """As vLLM's `WeightsMapper`, of which the replaced parts of names are looked at."""

    def __init__(self, orig_to_new_substr):
        self.replaced = orig_to_new_substr

    def __or__(self, other):
        return Mapper(self.replaced | other.replaced)


def trainer(own: nn.Module, engine: nn.Module, mode: str = "colocate") -> SimpleNamespace:
    """A trainer of `own` whose vLLM has the modules of `engine`."""
    engine.hf_to_vllm_mapper = Mapper({"a.": "b."})
    runner = SimpleNamespace(model_runner=SimpleNamespace(model=engine))
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_executor=SimpleNamespace(driver_worker=runner)))
    return SimpleNamespace(model=own, vllm_generation=SimpleNamespace(mode=mode, llm=llm))


def tower() -> nn.Module:
    return nn.ModuleDict({"encoder": nn.Linear(1, 1), "post_layernorm": nn.LayerNorm(1)})


def inside(module: nn.Module) -> nn.Module:
    return nn.ModuleDict({"vision_tower": nn.ModuleDict({"vision_model": module})})


def test_every_part_of_a_shortened_tower_is_told():
    own = nn.ModuleDict({"model": nn.ModuleDict({"vision_tower": tower()})})
    engine = inside(nn.ModuleDict({"encoder": nn.Linear(1, 1)}))
    expected = {
        f"vision_tower.{part}.": f"vision_tower.vision_model.{part}."
        for part in ("encoder", "post_layernorm")
    }
    assert match_weight_names(trainer(own, engine)) == expected
    assert engine.hf_to_vllm_mapper.replaced == {"a.": "b."} | expected


def test_names_that_agree_stay():
    engine = inside(tower())
    assert match_weight_names(trainer(inside(tower()), engine)) == {}
    assert engine.hf_to_vllm_mapper.replaced == {"a.": "b."}


def test_a_tower_of_a_backbone_with_an_adapter_stays():
    """As Idefics': `model.vision_model`, behind the names that PEFT puts before it."""
    own = nn.ModuleDict({"model": nn.ModuleDict({"vision_model": tower()})})
    adapted = nn.ModuleDict({"base_model": nn.ModuleDict({"model": own})})
    assert match_weight_names(trainer(adapted, own)) == {}


def test_a_server_cannot_be_told():
    with pytest.raises(ValueError, match=r"vllm_mode='server'.*Expected 'colocate'"):
        match_weight_names(trainer(tower(), tower(), mode="server"))
