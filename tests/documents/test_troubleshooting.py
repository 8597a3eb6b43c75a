"""What docs/troubleshooting.md quotes is what the code says."""

import ast
import re
import tempfile
from functools import cache

import pytest
import torch
from packaging.version import Version
from trl import GRPOConfig

from hf_vlm_rl.families.tiny import FAMILIES
from tests.documents.pages import PAGES, ROOT
from tests.images import photo
from tests.trainers.runs import by_ids, grpo, mixture, user

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


def one_step(policy_for, rows, reward=by_ids):
    options = {"max_steps": 1, "reward": reward}
    grpo(policy_for("qwen2_5_vl"), rows, tempfile.mkdtemp(), **options).train()


def an_image_in_place_of_a_list(policy_for, bare_for):
    one_step(policy_for, [{"prompt": user("What is it?"), "images": photo("cat", (112, 112))}] * 4)


def no_prompt(policy_for, bare_for):
    one_step(policy_for, [{"question": user("What is it?"), "image": photo("cat", (112, 112))}] * 4)


def a_prompt_of_text(policy_for, bare_for):
    one_step(policy_for, [{"prompt": "What is it?", "image": photo("cat", (112, 112))}] * 4)


def one_number_for_all(policy_for, bare_for):
    one_step(policy_for, mixture("qwen2_5_vl"), reward=lambda completions, **columns: 1.0)


def a_reward_without_columns(policy_for, bare_for):
    one_step(policy_for, mixture("qwen2_5_vl"), reward=lambda completions: [1.0] * len(completions))


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


ERRORS = (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError)
PROVOKED = {
    an_image_in_place_of_a_list: "object of type 'PngImageFile' has no len()",
    no_prompt: "KeyError: 'prompt'",
    a_prompt_of_text: "Multimodal training requires conversational prompts",
    one_number_for_all: "'float' object is not iterable",
    a_reward_without_columns: "got an unexpected keyword argument 'prompts'",
    half_precision_on_a_cpu: "Your setup doesn't support bf16/gpu",
    a_group_in_parts: "generation_batch_size (3) must be divisible by num_generations (2)",
    the_old_place_of_ppo: "cannot import name 'PPOTrainer' from 'trl'",
    no_ppo: "No module named 'trl.experimental.ppo'",
    a_length_limit: "token count between text and",
}


@pytest.mark.parametrize("mistake", PROVOKED, ids=lambda mistake: mistake.__name__)
def test_others_say_what_the_page_quotes(mistake, policy_for, bare_for):
    assert PROVOKED[mistake] in quoted(sections()[FOREIGN])
    with pytest.raises(ERRORS) as raised:
        mistake(policy_for, bare_for)
    assert PROVOKED[mistake] in raised.exconly()


_, TICKETS = sections()[FOREIGN].split("### A stock model got tickets")
STOCK = {
    family: message
    for message, families in re.findall(r"^\| `(.*?)` \| (.*?) \|$", TICKETS, flags=re.MULTILINE)
    for family in families.split(", ")
}


def test_each_family_is_on_the_page():
    assert STOCK.keys() >= set(FAMILIES)


@pytest.mark.parametrize("family", [family for family in STOCK if family.isidentifier()])
def test_a_stock_model_with_tickets_says_what_the_page_quotes(family, policy_for, bare_for):
    encode = policy_for(family).processing_class
    batch = encode(photo("cat", (112, 112)), [f"{encode.image_token} What is it?"], return_tensors="pt")
    with pytest.raises(ERRORS) as raised:
        bare_for(family)(**batch)
    assert STOCK[family] in raised.exconly()


def test_a_stock_model_that_generates_with_tickets_says_what_the_page_quotes(policy_for, bare_for):
    encode = policy_for("internvl").processing_class
    batch = encode(photo("cat", (112, 112)), [f"{encode.image_token} What is it?"], return_tensors="pt")
    with pytest.raises(ValueError, match=re.escape("are not used by the model: ['image_grid_thw']")):
        bare_for("internvl").generate(**batch, max_new_tokens=1)
