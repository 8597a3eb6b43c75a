"""Which families exist, and how to add one."""

from .family import VLMFamily
from .table import EQUAL_RANKS, FAMILIES

_BUILT_IN = tuple(FAMILIES.values())


def register_family(family: VLMFamily, exist_ok: bool = False) -> None:
    """Add a family for this process.

    Args:
        family: The row. Its `model_type` is the key.
        exist_ok: Replace the row of a known `model_type`.

    Raises:
        TypeError: If `family` is no `VLMFamily`.
        ValueError: If the `model_type` is known and `exist_ok` is False.
    """
    if not isinstance(family, VLMFamily):
        raise TypeError(f"Got a {type(family).__name__}, expected a hf_vlm_rl.VLMFamily.")
    if family.model_type in FAMILIES and not exist_ok:
        raise ValueError(
            f"The family {family.model_type!r} is registered already. Pass exist_ok=True to replace it."
        )
    FAMILIES[family.model_type] = family


def family_for(model_type: str) -> VLMFamily:
    """The written row of a `config.model_type`; one without any facts where nobody wrote one."""
    return FAMILIES.get(model_type) or VLMFamily(model_type, equal_ranks=model_type in EQUAL_RANKS)


def is_built_in(model_type: str) -> bool:
    """Whether a type's row is one of this package, whose tests cover it."""
    return FAMILIES.get(model_type) in _BUILT_IN
