"""Names of weights that transformers has shortened, told to the vLLM of this process.

TRL sends vLLM a model's weights under the names that the model has. vLLM knows those of checkpoints, and for
the towers of CLIP and SigLIP transformers 5 has others: `vision_tower.encoder`, not
`vision_tower.vision_model.encoder`.
"""

from typing import Any

INSIDE = "vision_model"

# What PEFT puts before the names of a model's weights, and TRL takes away.
PEFT = "base_model.model."


def match_weight_names(trainer: Any) -> dict[str, str]:
    """Let a trainer's vLLM take the weights of towers under transformers' names; call it before `train()`.

    Does nothing for a model whose names agree.

    Args:
        trainer: TRL's, with `use_vllm=True` and `vllm_mode="colocate"`.

    Returns:
        The parts of names that vLLM now replaces, and by what.

    Raises:
        ValueError: If vLLM runs in another process.
    """
    engine = trainer.vllm_generation
    if engine.mode != "colocate":
        raise ValueError(
            f"Got a trainer with vllm_mode={engine.mode!r}. Expected 'colocate': names can be told only to a "
            "vLLM in this process."
        )
    model = engine.llm.llm_engine.model_executor.driver_worker.model_runner.model
    own = [name.removeprefix(PEFT) for name, _ in trainer.model.named_parameters()]
    shortened: dict[str, str] = {}
    for path, _ in model.named_modules():
        tower, _, last = path.rpartition(".")
        if last != INSIDE:
            continue
        # The model's path of the tower ends as vLLM's does.
        behind = [f".{name}".partition(f".{tower}.")[2] for name in own]
        parts = {name.partition(".")[0] for name in behind if name}
        if INSIDE not in parts:
            shortened |= {f"{tower}.{part}.": f"{path}.{part}." for part in sorted(parts)}
    if shortened:
        mapper = model.hf_to_vllm_mapper
        model.hf_to_vllm_mapper = mapper | type(mapper)(orig_to_new_substr=shortened)
    return shortened
