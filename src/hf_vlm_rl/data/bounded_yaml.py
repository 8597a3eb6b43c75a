"""YAML whose aliases do not multiply."""

from typing import IO, Any

import yaml

LARGEST = 1 << 20  # characters and values, aliases written out


def load(file: str | IO[str]) -> Any:
    """`yaml.safe_load`, of at most `LARGEST` values and characters once every alias is written out.

    An alias takes three characters and may stand for ten others: ten lines of such lists are 10^10 values for
    whatever walks over them, PyYAML's own merge keys (`<<`) included.

    Raises:
        yaml.YAMLError: If it is no YAML, or larger.
    """
    loader = yaml.SafeLoader(file)
    try:
        node = loader.get_single_node()
        if _expanded(node, {}) > LARGEST:
            raise yaml.YAMLError(f"its aliases, written out, are more than {LARGEST} values and characters")
        return None if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except (
        IndexError,
        TypeError,
        AttributeError,
    ) as error:  # of PyYAML, on tags such as !!float without a text
        raise yaml.YAMLError(f"it cannot be read ({error})") from error
    finally:
        loader.dispose()


def _expanded(node: yaml.Node | None, sizes: dict[int, float]) -> float:
    if node is None:
        return 0
    if id(node) not in sizes:
        sizes[id(node)] = float("inf")  # until it is known: only what holds itself is asked again
        if isinstance(node.value, str):
            size: float = len(node.value)
        else:
            pairs = (part if isinstance(part, tuple) else (part,) for part in node.value)
            size = sum(_expanded(child, sizes) for pair in pairs for child in pair)
        sizes[id(node)] = 1 + size
    return sizes[id(node)]
