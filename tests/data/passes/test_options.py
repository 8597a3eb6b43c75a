"""The loaders' keywords stand in one public place, each with its explanation and its default."""

import inspect
import re
from dataclasses import fields

import pytest

from hf_vlm_rl.data import LoadOptions, load_llava, load_messages, load_mixture
from hf_vlm_rl.data.passes.options import Options

DEFAULTS = {field.name: field.default for field in fields(Options)}


def test_every_keyword_is_explained_with_its_default():
    explained = re.findall(r"^ {4,8}(\w+): (?:.|\n)*?Default: (.*)\.$", inspect.getdoc(LoadOptions), re.M)
    written = {name: default.split(",")[0].strip('`"') for name, default in explained}
    shown = {name: "none" if default == () else str(default) for name, default in DEFAULTS.items()}
    assert written == shown
    assert list(LoadOptions.__annotations__) == list(DEFAULTS)


@pytest.mark.parametrize("load", [load_llava, load_messages, load_mixture])
def test_every_loader_takes_them_and_says_where_they_are_explained(load):
    options = inspect.signature(load).parameters["options"]
    assert options.annotation.__args__ == (LoadOptions,)
    assert "`LoadOptions`" in load.__doc__
    with pytest.raises(TypeError, match="unexpected keyword argument 'anser'"):
        load("rows.jsonl", anser="solution")


@pytest.mark.parametrize("answer", ["prompt", "images", "completion"])
def test_an_answer_takes_no_other_column_s_name(answer):
    with pytest.raises(ValueError, match="which is another column's name"):
        load_llava("rows.jsonl", answer=answer, completion=True)
