"""What cannot be right is an error before the first step, with the row and what to change."""

import sys
from types import SimpleNamespace

import pytest
import torch

from hf_vlm_rl import ImageError, UnsupportedModelError
from hf_vlm_rl.compat import require_vllm_of_trl
from hf_vlm_rl.vllm import vllm_rollout
from tests.trainers.runs import grpo, mixture, square, user
from tests.vllm.fake import FakeGeneration

pytestmark = pytest.mark.trl
FAMILY = "qwen2_5_vl"


@pytest.fixture
def refused(policy_for, with_vllm):
    """`refused(error, message, change, **options)`: no step is made."""

    def check(error, message, change=lambda trainer: None, rows=None, **options):
        trainer = with_vllm(policy_for(FAMILY), rows or mixture(FAMILY), **options)
        change(trainer)
        with pytest.raises(error, match=message):
            trainer.train()
        assert trainer.state.global_step == 0

    return check


def test_a_trainer_that_does_not_use_vllm(refused):
    refused(ValueError, "use_vllm=False, and vllm_rollout as its rollout function", use_vllm=False)


def test_a_processing_class_that_is_no_policys(refused, native_processor_for):
    def take(trainer):
        trainer.processing_class = native_processor_for(FAMILY)

    refused(TypeError, "processing_class=policy.processing_class", take)


@pytest.mark.parametrize("tried", ["0.1.0", "99.0", "99.0.1+cu129"])
def test_a_version_that_trl_does_not_name(tried, refused, monkeypatch):
    def install(trainer):
        monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__=tried))

    refused(ImportError, rf"Got vLLM {tried[:4]}.* needs vllm[<>=].*install one of those", install)


def test_a_version_that_trl_names_is_taken():
    require_vllm_of_trl("0.25.0")
    require_vllm_of_trl("0.25.0+cpu")


def test_an_engine_that_loaded_another_kind_of_model(refused):
    def load(trainer):
        config = trainer.vllm_generation.llm.llm_engine.model_config.hf_config
        config.model_type = "internvl_chat"

    refused(
        UnsupportedModelError, r"internvl_chat model and the policy is a qwen2_5_vl.*hf-vlm-rl convert", load
    )


def test_a_prompt_that_is_too_long_once_expanded(refused):
    rows = 3 * [{"prompt": user("What is it?"), "images": [square("cat")]}]
    refused(
        ImageError,
        r"^Row 0: the prompt has \d+ tokens, 16 of images, .* started for 30 .*vllm_max_model_length",
        rows=rows,
        vllm_max_model_length=30,
    )


def test_images_beside_tools(refused):
    def look_up(word: str) -> str:
        """Look a word up.

        Args:
            word: Any word.
        """
        return word

    def give_tool(trainer):
        trainer.tools = [look_up]

    refused(ValueError, r"^Row \d has \d images, and the trainer has tools", give_tool)


def test_several_environments(policy_for, with_vllm):
    trainer = with_vllm(policy_for(FAMILY), mixture(FAMILY))
    trainer.environment_factories = {"shop": object, "game": object}
    with pytest.raises(ValueError, match=r"environments \['shop', 'game'\].*one environment"):
        vllm_rollout([user("Buy bread.")], trainer)


def test_log_probs_that_the_user_asks_for(refused):
    refused(ValueError, "Remove logprobs and logprob_token_ids", generation_kwargs={"logprobs": 5})


def swap(trainer, **methods):
    """Give the trainer's engine other methods."""
    engine = trainer.vllm_generation
    engine.__class__ = type("Other", (FakeGeneration,), methods)


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        (lambda ids: [*ids, 7], r"differ first at token \d+: '.*' against the end"),
        (lambda ids: ids[:-1], r"differ first at token \d+: the end against"),
        (lambda ids: [ids[1], ids[0], *ids[2:]], "differ first at token 0"),
    ],
)
def test_a_prompt_that_vllm_saw_otherwise(change, tokens, refused):
    rows = [{"prompt": user(text), "images": [square("cat")]} for text in ("One.", "Two.", "Three.")]

    def expanded(self, ids, images, options=None):
        self.count = getattr(self, "count", 0) + 1
        right = FakeGeneration.expanded(self, ids, images, options)
        return right if self.count < 5 else change(right)

    def sample(self, seen, images, options=None):
        return [30], [[-1.0]], [[30]]

    def other(trainer):
        swap(trainer, expanded=expanded, sample=sample)

    refused(ImageError, rf"^Row 4: vLLM saw another prompt than the policy: .*{tokens}", other, rows=rows)


@pytest.mark.parametrize(("dtype", "off", "most"), [(torch.float32, 0.1, 0.001), (torch.bfloat16, 1.0, 0.3)])
def test_log_probs_of_another_model(dtype, off, most, refused):
    """The prompts agree, and the weights or the code do not."""

    def sample(self, seen, images, options=None):
        completion, logprobs, tokens = FakeGeneration.sample(self, seen, images, options)
        return completion, [[value - off for value in each] for each in logprobs], tokens

    def other(trainer):
        swap(trainer, sample=sample)
        trainer.vllm_generation.llm.llm_engine.model_config.dtype = dtype

    refused(
        UnsupportedModelError,
        rf"^Row \d: vLLM's log-probs differ by [01.9]+ a token .* 2 images\. Expected less than {most}:",
        other,
    )


def test_an_image_that_vllm_refuses(refused):
    def generate(self, *given, **settings):
        raise ValueError("The image has 9000 tokens, and the encoder's budget is 4096.")

    refused(
        ImageError,
        r"vLLM refuses a batch of 6 prompts with images of \[\(96, 96\).*9000 tokens.*max_pixels",
        lambda trainer: swap(trainer, generate=generate),
    )


def test_a_placeholder_that_was_sampled_all_the_same(refused):
    def sample(self, seen, images, options=None):
        token, others = self.placeholders[0], [-100.0] * len(self.placeholders)
        return [30, token], [[-1.0, *others], [-1.0]], [[30, *self.placeholders], [token]]

    refused(
        ImageError,
        r"^Row 0: vLLM sampled the placeholder \d+ as token 1 of a completion",
        lambda trainer: swap(trainer, sample=sample),
    )


def test_an_engine_that_gives_no_log_probs_of_placeholders_is_refused(refused):
    refused(
        UnsupportedModelError,
        r"^Row 0: vLLM gave no log-probs of the placeholders \[\d+.*--max-logprobs -1",
        lambda trainer: swap(trainer, sample=lambda self, *inputs: ([30], [[-1.0]], [[30]])),
    )


def test_an_image_that_cannot_be_read_names_its_row(policy_for, with_vllm):
    trainer = with_vllm(policy_for(FAMILY), mixture(FAMILY))
    prompts = [user("Hello."), [{"role": "user", "content": [{"type": "image", "image": "no/such.png"}]}]]
    with pytest.raises(ImageError, match=r"^Row 1\b.*no/such\.png"):
        vllm_rollout(prompts, trainer)


def test_without_vllm_trl_says_what_to_install(policy_for, tmp_path):
    with pytest.raises(ImportError, match=r"vLLM is not available.*pip install trl\[vllm\]"):
        grpo(policy_for(FAMILY), mixture(FAMILY), tmp_path, use_vllm=True, rollout=vllm_rollout)
