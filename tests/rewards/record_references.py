"""Write references.jsonl: what independent libraries make of numbers, words, boxes, JSON and mathematics.

    pip install --no-deps --target /tmp/references babel jiwer pycocotools fastjsonschema quantulum3 inflect \
        more_itertools typeguard
    PYTHONPATH=src:/tmp/references python -m tests.rewards.record_references

Each line has the reference with its version, and its cases. The tests need none of these libraries.
"""

import itertools
import json
import random
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).with_name("references.jsonl")
LANGUAGES = "en de fr es it pt nl sv ru pl tr ja zh ko hi bn ar fa th vi id el de_CH en_IN".split()  # noqa: SIM905
IN_WORDS = "en de fr es it pt nl sv pl tr id vi".split()  # noqa: SIM905


def line(what: str, package: str, cases: list, **more) -> str:
    record = {"what": what, "reference": f"{package} {version(package)}", **more, "cases": cases}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def numbers(language: str):
    """[text, value]: decimals, percentages, money, powers of ten and abbreviated numbers."""
    from babel import numbers as written

    rng = random.Random(language)
    for digits in range(40):
        value = round(rng.uniform(-(10 ** (digits % 9)), 10 ** (digits % 9 + 1)), digits % 4)
        yield written.format_decimal(value, locale=language), value
        yield written.format_decimal(int(value), locale=language), int(value)
        yield written.format_percent(int(value) / 100, locale=language), int(value)
        money = round(abs(value), 2)
        yield written.format_currency(money, "EUR", locale=language), money
        yield written.format_scientific(int(value), locale=language), int(value)
        large = rng.randint(1, 9) * 10 ** rng.randint(3, 10)
        for form in ("short", "long"):
            try:
                yield written.format_compact_decimal(large, format_type=form, locale=language), large
            except KeyError:  # not every language has both
                continue


def names(language: str) -> list[str]:
    """Countries."""
    from babel import Locale

    return [name for code, name in sorted(Locale.parse(language).territories.items()) if code.isalpha()][:70]


def misread(language: str):
    """[said, right, edits]: names with letters changed, dropped and doubled."""
    import jiwer

    rng = random.Random(language)
    letters = "".join(names(language))
    for name in names(language):
        said = list(name)
        for _ in range(rng.randint(0, 4)):
            place = rng.randrange(len(said) + 1)
            said[place : place + rng.randint(0, 1)] = rng.choice(["", rng.choice(letters)])
        text = " ".join("".join(said).split()) or "?"
        counted = jiwer.process_characters(name, text)
        yield text, name, counted.substitutions + counted.deletions + counted.insertions


def boxes(rng: random.Random):
    """[a, b, IoU], corners of whole numbers."""
    from pycocotools import mask

    for _ in range(300):
        a, b = (
            [rng.randint(0, 30), rng.randint(0, 30), rng.randint(31, 60), rng.randint(31, 60)] for _ in "ab"
        )
        if rng.random() < 0.2:
            b = [number + rng.choice([31, 60]) for number in a]
        sides = [[[x1, y1, x2 - x1, y2 - y1]] for x1, y1, x2, y2 in (a, b)]
        yield a, b, float(mask.iou(*sides, [0])[0, 0])


SCHEMAS = [
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "number", "multipleOf": 0.5},
    {"type": "string", "minLength": 2, "pattern": "^a"},
    {"enum": ["a", 1, None, [1]]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True},
    {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer"}},
    },
    {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "boolean"}}},
    {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 2}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
    {"not": {"type": "string"}},
    {"const": {"a": [1, 2]}},
    {"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"type": "integer"}},
]
INSTANCES = """0|1|9|10|-1|1.0|1.5|2.25|3|"a"|"ab"|"b"|""|null|true|false|[]|[1]|[1,1]|[1,2,3]
["a"]|{}|{"n":3}|{"n":"3"}|{"a":true}
{"a":1}|{"a":[1,2]}|{"b":1}""".replace("\n", "|").split("|")


def fits():
    """[schema, text, whether it fits]."""
    import fastjsonschema

    for schema in SCHEMAS:
        check = fastjsonschema.compile({"$schema": "http://json-schema.org/draft-07/schema#", **schema})
        for text in INSTANCES:
            try:
                check(json.loads(text))
            except fastjsonschema.JsonSchemaException:
                yield schema, text, False
            else:
                yield schema, text, True


VALUES = r"""0|1|-1|5|-5|12|0.5|\frac{1}{2}|-\frac{3}{4}|\sqrt{2}|2\sqrt{3}|\pi|2\pi|x+1|x^2
(x+1)^2|x^2+2x+1|\frac{x}{2}|10^{-3}
0.001|50\%|(1,2)|[0,1]|\{1,2\}|x=5|120|5!|25|5^2|2^{10}|1024""".replace("\n", "|").split("|")


def equalities(rng: random.Random):
    """[right, said, whether they are equal], in a box and as a formula."""
    from math_verify import parse, verify

    pairs = list(itertools.product(VALUES, VALUES))
    for right, said in rng.sample(pairs, 270) + [(value, value) for value in VALUES]:
        yield right, said, bool(verify(parse(f"${right}$"), parse(f"${said}$")))


def formulas():
    r"""[LaTeX, value]: numbers such as \frac{1}{2}."""
    from math_verify import parse

    forms = [
        r"\frac{%d}{%d}",
        r"-\frac{%d}{%d}",
        r"%d.%d",
        r"%d\times10^{%d}",
        r"10^{%d}\cdot%d",
        r"%d^{%d}",
        r"%d-%d",
    ]
    forms += [
        r"%d+%d",
        r"\sqrt{%d%d}",
        r"%d%d\%%",
        r"\dfrac{%d}{%d}",
        r"\boxed{%d%d}",
        r"\frac%d%d",
        r"%d!+%d",
        r"%d{,}%d00",
    ]
    for form, (a, b) in itertools.product(
        forms, [(1, 2), (3, 4), (7, 5), (9, 3), (2, 9), (5, 8), (4, 1), (6, 7)]
    ):
        found = parse(f"${form % (a, b)}$")
        if found and getattr(value := found[0], "is_real", False):
            yield form % (a, b), float(value)


def quantities():
    """[sentence, value, unit]."""
    from quantulum3 import classifier, parser

    classifier.USE_CLF = False  # its trained one needs an older scikit-learn
    written = ["7", "-3", "1,250", "0.75", "2½", "3/4", "1.5 million", "12.5", "1e3", "42"]
    units = [
        "km",
        "kg",
        "meters",
        "litres",
        "hours",
        "dollars",
        "percent",
        "cats",
        "m/s",
        "GB",
        "°C",
        "miles",
        "ft",
        "%",
    ]
    for number, unit in itertools.product(written, units):
        for sentence in (
            f"It is {number} {unit}.",
            f"The answer is {number}{unit if unit in '°C%kmkg' else ' ' + unit}",
        ):
            found = parser.parse(sentence)
            if len(found) == 1:
                yield sentence, found[0].value, found[0].unit.name


def spoken(language: str):
    """[words, number]: zero to one hundred, and in English more."""
    from num2words import num2words

    for number in [*range(101), *(range(107, 1_000, 7) if language == "en" else ())]:
        yield num2words(number, lang=language), number


if __name__ == "__main__":
    rng = random.Random(0)
    lines = [line("numbers", "babel", list(numbers(each)), language=each) for each in LANGUAGES]
    lines += [line("names", "babel", names(each), language=each) for each in LANGUAGES[:-2]]
    lines += [line("edits", "jiwer", list(misread(each)), language=each) for each in LANGUAGES[:-2]]
    lines += [line("words", "num2words", list(spoken(each)), language=each) for each in IN_WORDS]
    lines += [line("IoU", "pycocotools", list(boxes(rng)))]
    lines += [line("JSON", "fastjsonschema", list(fits()))]
    lines += [line("equalities", "math-verify", list(equalities(rng)))]
    lines += [line("formulas", "math-verify", list(formulas()))]
    lines += [line("quantities", "quantulum3", list(quantities()))]
    FILE.write_text("".join(lines), encoding="utf-8")
