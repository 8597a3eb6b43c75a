"""A policy as a model of lmms-eval: `lmms-eval --model hf_vlm_rl --model_args pretrained=ID --tasks TASKS`.

lmms-eval finds `manifest` by the entry point `lmms_eval.models`, and by it `SimplePolicy` and `ChatPolicy`.
These are made on first use, since only they need lmms-eval.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from ..loading.auto import AutoVLMPolicy

if TYPE_CHECKING:
    from lmms_eval.api.instance import GenerationResult, Instance

# What a task may say of its answers and `generate` takes; `until` is cut off afterwards.
PASSED = ("max_new_tokens", "temperature", "top_p", "top_k", "num_beams", "do_sample")
OTHERS = ("until", "max_gen_toks", "image_aspect_ratio")


class _Policy:
    """What both forms of task share.

    Args:
        pretrained: Hub id or directory of a model or an adapter, as for `AutoVLMPolicy.from_pretrained`.
        policy: A policy in its place, or a `PeftModel` around one.
        batch_size: Conversations in a batch.
        device: Where the model goes. Default: where it loads by itself.
        max_batch_size: Not used; lmms-eval passes it.
        **options: For `AutoVLMPolicy.from_pretrained`, such as `base_model` and `dtype`.

    Raises:
        ValueError: If not one of `pretrained` and `policy` is given, or there are several processes.
    """

    # Documents by task and split, from lmms-eval.
    task_dict: dict

    def __init__(
        self,
        pretrained: str | None = None,
        policy: Any = None,
        batch_size: int | str | None = 1,
        device: str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("Got several processes. Expected one: the policy does not share out tasks.")
        if policy is None and pretrained is not None:
            policy = AutoVLMPolicy.from_pretrained(pretrained, device_map=device, **options)
        elif policy is None or pretrained is not None or options:
            raise ValueError(
                f"Got {pretrained=}, a {type(policy).__name__} as policy and {sorted(options)}. Expected "
                "pretrained= with options of from_pretrained, or policy= alone."
            )
        self.policy = policy.eval()
        self.batch_size = int(batch_size or 1)

    def generate_until_multi_round(self, requests: Any) -> list[str]:
        """Refused: tasks whose next question depends on an answer.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("Tasks of several rounds are not supported by hf_vlm_rl.")

    def loglikelihood(self, requests: "list[Instance]") -> "list[GenerationResult]":
        """Mean loss of each continuation's tokens, in nats, and whether greedy sampling would give it.

        Tasks of lmms-eval take the choice with the least value, and its own models return losses. A bare
        pair would be turned into a string by lmms-eval 0.7.3, so each is wrapped.
        """
        from lmms_eval.api.instance import GenerationResult

        scores = []
        for start in range(0, len(requests), self.batch_size):
            scores += self._scores([request.args for request in requests[start : start + self.batch_size]])
        return [GenerationResult(text=pair) for pair in scores]

    def _scores(self, arguments: list[tuple]) -> list[tuple[float, bool]]:
        processing = self.policy.processing_class
        prompts = processing.apply_chat_template(
            [self._question(context, visual, *place) for context, _, visual, *place in arguments],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "left"},
        )
        targets = [self._target(target, *place) for _, target, _, *place in arguments]
        ends = processing(text=targets, add_special_tokens=False)["input_ids"]
        if not all(ends):
            raise ValueError(f"Got the choices {targets!r:.200}. Expected none without a token.")
        width = max(map(len, ends))
        ids = torch.tensor([end + [processing.pad_token_id] * (width - len(end)) for end in ends])
        mask = torch.tensor([[1] * len(end) + [0] * (width - len(end)) for end in ends])
        prompts["input_ids"] = torch.cat([prompts["input_ids"], ids], 1)
        prompts["attention_mask"] = torch.cat([prompts["attention_mask"], mask], 1)
        with torch.no_grad():
            output = self.policy(**prompts.to(self.policy.device), logits_to_keep=width + 1, use_cache=False)
        logps = output.logits[:, :-1].float().log_softmax(-1).cpu()
        own = logps.gather(-1, ids[..., None])[..., 0] * mask
        greedy = ((logps.argmax(-1) == ids) | (mask == 0)).all(1)
        losses = -own.sum(1) / mask.sum(1)
        return list(zip(losses.tolist(), greedy.tolist(), strict=True))

    def _target(self, target: Any, doc_id: int, task: str, split: str) -> str:
        return target(self.task_dict[task][split][doc_id]) if callable(target) else target

    def _question(self, context: str, visual: Any, doc_id: int, task: str, split: str) -> list[dict]:
        """Images of a document before the task's words, where lmms-eval's own models have them."""
        images = visual(self.task_dict[task][split][doc_id]) or []
        blocks = [{"type": "image", "image": _picture(image, task, doc_id)} for image in images]
        text = context.replace("<image>", "").strip()
        return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}]}]

    def _conversation(self, arguments: tuple) -> list[dict]:
        context, _, visual, *place = arguments
        return self._question(context, visual, *place)

    def _options(self, arguments: tuple) -> dict:
        return arguments[1]

    def generate_until(self, requests: "list[Instance]") -> list[str]:
        """Answers in the order of the requests, cut at the first of the task's `until`.

        Raises:
            ValueError: If a task asks for something that `generate` has no argument for, or has a video.
        """
        answers = []
        for settings, group in groupby(requests, lambda request: self._options(request.args)):
            options, until = _generation(settings)
            same = list(group)
            for start in range(0, len(same), self.batch_size):
                conversations = [
                    self._conversation(each.args) for each in same[start : start + self.batch_size]
                ]
                answers += [_cut(text, until) for text in self.policy.chat(conversations, **options)]
        return answers


class _Simple(_Policy):
    """For tasks of `doc_to_text` and `doc_to_visual`, also those that compare log-likelihoods."""


class _Chat(_Policy):
    """For tasks of `doc_to_messages`: images stay where a task puts them among the words."""

    is_simple = False

    def _conversation(self, arguments: tuple) -> list[dict]:
        _, messages, _, doc_id, task, split = arguments
        return [
            {"role": message["role"], "content": [_block(each, task, doc_id) for each in message["content"]]}
            for message in messages(self.task_dict[task][split][doc_id])
        ]

    def _options(self, arguments: tuple) -> dict:
        return arguments[2]


_FORMS = {"SimplePolicy": _Simple, "ChatPolicy": _Chat}


def __getattr__(name: str) -> Any:
    """`SimplePolicy`, `ChatPolicy` and `manifest`, each made once."""
    if name in _FORMS:
        from lmms_eval.api.model import lmms

        form = _FORMS[name]
        value: Any = type(name, (form, lmms), {"__module__": __name__, "__doc__": form.__doc__})
    elif name == "manifest":
        from lmms_eval.models.registry_v2 import ModelManifest

        value = ModelManifest("hf_vlm_rl", f"{__name__}.SimplePolicy", f"{__name__}.ChatPolicy")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, value)


def _block(block: dict, task: str, doc_id: int) -> dict:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] != "image":
        raise ValueError(f"Task {task}, document {doc_id}: got a {block['type']}. Expected texts and images.")
    return {"type": "image", "image": _picture(block["url"], task, doc_id)}


def _picture(image: Any, task: str, doc_id: int) -> Image.Image:
    if not isinstance(image, Image.Image):
        raise ValueError(
            f"Task {task}, document {doc_id}: got a {type(image).__name__}. Expected PIL images: videos and "
            "sounds of lmms-eval are not supported."
        )
    return image


def _generation(settings: dict) -> tuple[dict, Sequence[str]]:
    """Arguments of `generate`, and the texts before which an answer ends."""
    if unknown := sorted(set(settings) - {*PASSED, *OTHERS}):
        raise ValueError(f"Got the generation_kwargs {unknown} of a task. Expected {', '.join(PASSED)}.")
    options = {name: settings[name] for name in PASSED if settings.get(name) is not None}
    if "max_gen_toks" in settings:
        options.setdefault("max_new_tokens", settings["max_gen_toks"])
    if not options.setdefault("do_sample", options.get("temperature", 0) > 0):
        options = {
            name: value for name, value in options.items() if name not in ("temperature", "top_p", "top_k")
        }
    until = settings.get("until") or []
    return options, [until] if isinstance(until, str) else until


def _cut(text: str, until: Sequence[str]) -> str:
    return min((text.split(end)[0] for end in until if end), key=len, default=text)
