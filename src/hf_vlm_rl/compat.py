"""The only place with version comparisons. Each fact: what it is, since when, when it can go."""

from importlib.metadata import version

from packaging.version import Version

# TRL loads a model id whose architecture transformers does not have through AutoModelForCausalLM
# (before: AttributeError in create_model_from_path). Since TRL 1.8; goes when trl >= 1.8 is required.
TRL_WITH_UNKNOWN_ARCHITECTURES = Version("1.8")


def require_trl_with_unknown_architectures() -> None:
    """Raise unless the installed TRL can be led to a policy class; see `registration`.

    Raises:
        ImportError: If TRL is older than 1.8.
    """
    installed = Version(version("trl"))
    if installed < TRL_WITH_UNKNOWN_ARCHITECTURES:
        raise ImportError(
            f"Got TRL {installed}. register() needs TRL >= {TRL_WITH_UNKNOWN_ARCHITECTURES}: older "
            "ones only load architectures that transformers has. Upgrade TRL, or use PEFT or "
            "beta=0, which need no reference model."
        )
