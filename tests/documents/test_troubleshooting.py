"""What docs/troubleshooting.md quotes is what the code says."""

import ast
import re
from functools import cache

import pytest
import torch
from packaging.version import Version
from trl import GRPOConfig

from tests.documents.pages import PAGES, ROOT
from tests.images import photo

PAGE = PAGES["docs/troubleshooting.md"].read_text()
GAP = "\0"  # what a message has in place of a value
FOREIGN = "Messages of TRL, transformers and Python"
SILENT = "No message: it waits, or learns nothing"


def sections() -> dict[str, str]:
    _, *rest = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def quoted(section: str) -> list[str]:
    """The messages in the first column of a section's table."""
    cells = re.findall(r"^\| (.*?) \|", section, flags=re.MULTILINE)[1:]
    return [match[1] for cell in cells if (match := re.match(r"`(.*?)`", cell))]


OWN = [text for title, part in sections().items() if title not in (FOREIGN, SILENT) for text in quoted(part)]


def template(node: ast.expr) -> str:
    """The text of an expression, with a gap for each part that is no literal."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return GAP


@cache
def messages() -> tuple[str, ...]:
    """Every text in the code that is no docstring."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text())
        plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        kinds = (ast.Constant, ast.JoinedStr, ast.BinOp)
        found += [
            template(node) for node in ast.walk(tree) if isinstance(node, kinds) and id(node) not in plain
        ]
    return tuple(text for text in found if " " in text)


def pattern(quote: str) -> re.Pattern:
    """`...` stands for what is between; a value may also be spelled out where the code has a gap."""
    return re.compile(".*?".join(re.escape(part) for part in re.split(r"\s?\.\.\.\s?", quote)), re.DOTALL)


def test_messages_are_found():
    assert len(OWN) > 40
    assert len(set(OWN)) == len(OWN)


@pytest.mark.parametrize("quote", OWN)
def test_the_message_is_in_the_code(quote):
    assert any(pattern(quote).search(message) for message in messages()), quote


def stock_model_with_tickets(policy_for, bare_for):
    encode = policy_for("qwen2_5_vl").processing_class
    batch = encode(photo("cat", (112, 112)), [f"{encode.image_token} What is it?"], return_tensors="pt")
    bare_for("qwen2_5_vl")(**batch)


def half_precision_on_a_cpu(policy_for, bare_for):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    GRPOConfig(output_dir="out")


def a_group_in_parts(policy_for, bare_for):
    options = {"per_device_train_batch_size": 3, "num_generations": 2, "use_cpu": True, "bf16": False}
    GRPOConfig(output_dir="out", **options)


def the_old_place_of_ppo(policy_for, bare_for):
    from trl import PPOTrainer  # noqa: F401


def no_ppo(policy_for, bare_for):
    import trl

    if Version(trl.__version__) < Version("1.13"):
        pytest.skip("this TRL has it")
    from trl.experimental.ppo import PPOTrainer  # noqa: F401


def a_length_limit(policy_for, bare_for):
    processing = policy_for("qwen2_5_vl").processing_class
    text = [f"{processing.image_token} What is it?"]
    processing(photo("cat", (112, 112)), text, truncation=True, max_length=8)


PROVOKED = {
    stock_model_with_tickets: "shape '[0, 2, 0, 2]' is invalid for input of size 1",
    half_precision_on_a_cpu: "Your setup doesn't support bf16/gpu",
    a_group_in_parts: "generation_batch_size (3) must be divisible by num_generations (2)",
    the_old_place_of_ppo: "cannot import name 'PPOTrainer' from 'trl'",
    no_ppo: "No module named 'trl.experimental.ppo'",
    a_length_limit: "token count between text and",
}


@pytest.mark.parametrize("mistake", PROVOKED, ids=lambda mistake: mistake.__name__)
def test_others_say_what_the_page_quotes(mistake, policy_for, bare_for):
    assert PROVOKED[mistake] in quoted(sections()[FOREIGN])
    with pytest.raises((RuntimeError, ValueError, ImportError), match=re.escape(PROVOKED[mistake])):
        mistake(policy_for, bare_for)
