"""Rewards that lean on optional packages: mathematics and JSON; and what they say without them."""

import re
import subprocess
import sys

import pytest

from hf_vlm_rl import rewards
from hf_vlm_rl.rewards import JSONSchemaReward, math_reward


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("\\boxed{\\frac{2}{6}}", "1/3", 1),
        ("<answer>0.5</answer>", "\\frac12", 1),
        ("$x^2+2x+1$", "(x+1)^2", 1),
        ("x^2 + 2x + 1", "$(x+1)^2$", 1),
        ("\\boxed{1} then \\boxed{2}", "2", 1),
        ("50%", "0.5", 1),
        ("so it is 12", 12, 1),
        ("x^2y^3", "y^3x^2", 1),
        ("11", "12", 0),
        ("\\boxed{x+1}", "x", 0),
        ("\\sum_{i=1}^{3} i", "6", 1),
        ("5!", "120", 1),
        ("5!", "5", 0),
        ("\\sum_{i=1}^{n} i", "$\\sum_{i=1}^{n} i$", 1),
        ("1" * 300, "1", 0),
        ("nothing", "1", 0),
    ],
)
def test_mathematics(said, answer, right):
    assert math_reward([said], answer=[answer]) == [right]


@pytest.mark.parametrize(
    "key",
    [
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\overline{AB}",
        r"\frac{ab}{cd}",
        r"\text{DNE}",
        "60°",
        r"\{x \mid x > 0\}",
        "DNE",
    ],
)
@pytest.mark.parametrize("form", ["{}", "\\boxed{{{}}}", "It is ${}$, so \\boxed{{{}}}.", "${}$."])
def test_an_answer_that_is_written_like_the_key_is_right(key, form):
    metrics = {}
    answer = form.format(key, key)
    assert math_reward([answer], answer=[key], log_metric=metrics.__setitem__) == [1.0]
    assert metrics == {"math_reward/parse_rate": 1.0}


def test_what_is_no_mathematics_and_not_the_key_is_malformed():
    metrics = {}
    assert math_reward(["nothing", "1"], answer=["DNE", "DNE"], log_metric=metrics.__setitem__) == [0.0, 0.0]
    assert metrics == {"math_reward/parse_rate": 0.5}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ('{"n": 3}', 1),
        ('<answer>```json\n{"n": 3}\n```</answer>', 1),
        ('Here: ```\n{"n": 3}```', 1),
        ('{"n": "3"}', 0.25),
        ("null", 0.25),
        ('{"n": NaN}', 0),
        ('{"n": 3', 0),
        ("", 0),
    ],
)
def test_json_must_fit_its_schema(said, value):
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    assert JSONSchemaReward(schema, parsed=0.25)([said]) == [value]


def test_numbers_that_no_float_holds_are_no_answer():
    for schema in ({"type": "integer"}, {"multipleOf": 0.1}, {"minimum": 0}):
        huge = ["1e400", "-1e400", "[1e999]", "1" * 400]
        assert JSONSchemaReward(schema)(huge) == [0.0] * len(huge)
    assert JSONSchemaReward({"type": "number"})(["1e308", "12345678901234567890"]) == [1.0, 1.0]


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$id": "http://x/a",
            "properties": {"p": {"$id": "b", "$ref": "#/$defs/here"}},
            "$defs": {"here": {}},
        },
        {"$ref": "#/parts/a", "parts": {"a": {"$ref": "#/parts/b"}}},
        {"$dynamicRef": "#nope"},
    ],
)
def test_references_are_looked_up_where_they_stand(schema):
    with pytest.raises(ValueError, match=r"the reference '#.*', which is not in it"):
        JSONSchemaReward(schema)


def test_what_looks_like_a_reference_in_data_is_none():
    assert JSONSchemaReward({"enum": [{"$ref": "#/nope"}]})(['{"$ref": "#/nope"}']) == [1.0]
    with pytest.raises(ValueError, match="schema that is none"):
        JSONSchemaReward({"pattern": "["})
    with pytest.raises(ValueError, match="schema that is none"):
        JSONSchemaReward({"$ref": "#/parts/a", "parts": {"a": {"type": "nonsense"}}})


def test_a_schema_must_be_one_and_complete():
    with pytest.raises(ValueError, match=r"schema that is none.*nonsense"):
        JSONSchemaReward({"type": "nonsense"})
    for reference in ("http://127.0.0.1:9/schema.json", "#/$defs/none"):
        with pytest.raises(ValueError, match=f"the reference '{re.escape(reference)}', which is not in it"):
            JSONSchemaReward({"items": {"$ref": reference}})
    tree = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    deep = "[" * 500 + "]" * 500
    assert JSONSchemaReward(tree)(["[[], [[]]]", "[1]", deep]) == [1, 0, 0]


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("rapidfuzz", "rewards.ocr_reward(['a'], answer=['a'])"),
        ("math_verify", "rewards.math_reward(['1'], answer=['2'])"),
        ("scipy", "rewards.detection_reward(['[1,2,3,4]'], boxes=[[[1,2,3,4]]])"),
        ("jsonschema", "rewards.JSONSchemaReward({})"),
    ],
)
def test_a_missing_package_says_what_to_install(package, call):
    code = f"import sys; sys.modules[{package!r}] = None\nfrom hf_vlm_rl import rewards\n{call}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install '.[rewards]'" in ended.stderr.splitlines()[-1]


def test_rewards_import_without_torch_or_optional_packages():
    heavy = ("torch", "transformers", "trl", "scipy", "sympy", "jsonschema", "rapidfuzz")
    code = f"import sys, hf_vlm_rl.rewards; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    assert all(getattr(rewards, name).__doc__ for name in rewards.__all__)


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        (r"The answer is not \boxed{5}.", "5", 0),
        (r"It isn't \boxed{5}", "5", 0),
        (r"\boxed{5} is wrong.", "5", 0),
        (r"<answer>not \boxed{5}</answer>", "5", 0),
        (r"\neq 5", "5", 0),
        ("\u2260 5", "5", 0),
        (r"\boxed{\neq 5}", "5", 0),
        (r"\boxed{x \neq 5}", r"x \neq 5", 1),
        (r"2 is not a root, so \boxed{5}", "5", 1),
        (r"Not 3. It is \boxed{5}.", "5", 1),
        ("2 1/2", "21/2", 0),
        ("21/2", "2 1/2", 0),
        ("1 2", "12", 0),
        ("34", "3 4", 0),
        ("x + 1", "x+1", 1),
        (".", "", 0),
    ],
)
def test_denials_and_spaces_of_mathematics(said, answer, right):
    assert math_reward([said], answer=[answer]) == [right]


def test_a_fence_in_a_string_of_json_is_text():
    reward = JSONSchemaReward({"type": "object", "required": ["s"]})
    assert reward(['{"s": "run ```ls``` now"}', '```json\n{"s": 1}\n```', "```ls```"]) == [1, 1, 0]
