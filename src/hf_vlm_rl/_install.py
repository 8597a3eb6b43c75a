"""How this package is installed, as messages say it: the one place that knows."""

# A checkout; "hf-vlm-rl" once a release is on the package index.
SOURCE = "."


def pip_install(extra: str) -> str:
    """The command for an extra."""
    return f"pip install '{SOURCE}[{extra}]'"
