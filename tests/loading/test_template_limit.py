"""A chat template that does not end, or fills the memory, is refused when its checkpoint is loaded."""

import pytest
from transformers import AutoProcessor

from hf_vlm_rl import UnsupportedModelError
from hf_vlm_rl.loading.stock import load_processor
from hf_vlm_rl.loading.template_limit import STEPS, check_template

TOO_MUCH = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "texts": "{% set s = 'x' * 9999 %}{% for a in s %}{% for b in s %}{% endfor %}{% endfor %}",
    "loop in a macro": "{% macro f() %}{% for a in range(99999) %}{% endfor %}{% endmacro %}"
    "{% for b in range(99999) %}{{ f() }}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "product": "{{ 'x' * 10 ** 10 }}",
    "list": "{{ [0] * 10 ** 10 }}",
    "power": "{{ 10 ** (10**10) }}",
    "loop over the loop's length": "{% for a in range(99999) %}{% for b in range(99999) %}{{ loop.length }}"
    "{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_template_of_too_many_steps_is_refused(text):
    with pytest.raises(
        UnsupportedModelError, match=r"The chat template of 'user/model' needs (more than|a p)"
    ):
        check_template(text, "user/model")
    with pytest.raises(UnsupportedModelError, match="user/model"):
        check_template({"default": "{{ messages }}", "tool_use": text}, "user/model")


def test_a_checkpoint_with_such_a_template_is_refused_when_it_is_loaded(tmp_path, checkpoint):
    processor = AutoProcessor.from_pretrained(checkpoint("internvl"))
    processor.chat_template = TOO_MUCH["loops"]
    processor.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=f"needs more than {STEPS} steps for two short messages"):
        load_processor(str(tmp_path), {})


@pytest.mark.parametrize(
    "text",
    [
        "{% for m in messages %}{% for block in m.content %}{{ block.type }}{% endfor %}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}",
        "{{ raise_exception('no images') }}",
        "{{ messages[7].content }}",
        "{% for a in range(999) %}{{ loop.index * 2 }}{{ loop.length }}{{ 'ab' * 3 }}{% endfor %}",
        "{% if messages[0]['content'] is string %}a{% endif %}{{ strftime_now('%Y') }}{{ [1] | tojson }}",
    ],
)
def test_other_templates_pass(text):
    check_template(text, "user/model")


def test_what_is_no_template_is_named():
    with pytest.raises(UnsupportedModelError, match="'user/model' is no Jinja template: unexpected 'end of"):
        check_template("{% for", "user/model")
