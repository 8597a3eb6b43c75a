"""`AdapterCardData`: what an adapter's card says, by who says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import ModelCardData

from ...evaluation.measurement import Evaluation
from .facts import BaseFacts, CardFacts

# Until a push says where the adapter goes.
PLACEHOLDER_ID = "user/adapter"


@dataclass
class AdapterCardData:
    """The content of a card.

    ```python
    card = AdapterCardData(summary="Reads handwritten digits.", datasets=["user/digits"], language=["en"])
    push_adapter(trainer, "user/adapter", card=card)
    ```

    Attributes:
        title: Heading. Default: the name of the repository.
        summary: What the adapter does, in Markdown.
        prompt: The question in the copy-and-run snippets.
        datasets: Ids of the training data on the Hub.
        data_notes: About the training data, in Markdown.
        evaluations: Measurements before and after training. Default: those of the trainer's
            `EvaluationCallback`, if it has one.
        limits: What the adapter cannot do, one sentence each.
        language: Codes (ISO 639) of the languages it answers in.
        license: Default: that of the base model, as its card on the Hub has it.
        license_name: For `license="other"`.
        license_link: For `license="other"`.
        tags: Further tags.
        repo_id: Where it is pushed to; filled by the push.
        facts: Filled by the run.
    """

    # The user gives.
    title: str | None = None
    summary: str | None = None
    prompt: str = "What is in this image?"
    datasets: Sequence[str] = ()
    data_notes: str | None = None
    evaluations: Sequence[Evaluation] = ()
    limits: Sequence[str] = ()
    language: Sequence[str] = ()
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    tags: Sequence[str] = ()
    # The run fills.
    repo_id: str | None = field(default=None, init=False)
    facts: CardFacts | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("datasets", "limits", "language", "tags", "evaluations"):
            value = getattr(self, name)
            if isinstance(value, str | Evaluation):
                raise ValueError(f"Got {name}={value!r}. Expected a list, such as [{value!r}].")

    @property
    def name(self) -> str:
        """The heading, and the model's name in `model-index`."""
        return self.title or (self.repo_id or PLACEHOLDER_ID).rsplit("/", 1)[-1]

    def filled(self) -> CardFacts:
        """The facts.

        Raises:
            ValueError: If nothing has filled them.
        """
        if self.facts is None:
            raise ValueError("Got a card without facts. Use save_adapter or push_adapter, which fill them.")
        return self.facts

    def all_tags(self) -> list[str]:
        """The tags, without repetition: trainer, method, adapter, then the user's."""
        tags = []
        if self.facts is not None:
            if self.facts.run is not None:
                methods = [*(stage.method for stage in self.facts.stages), self.facts.run.method]
                tags += ["trl", *filter(None, methods)]
            tags.append(self.facts.adapter.kind.lower())
        return list(dict.fromkeys([*tags, "conversational", "hf-vlm-rl", *self.tags]))

    def metadata(self) -> dict[str, Any]:
        """The card's metadata, by the Hub's keys.

        Raises:
            ValueError: If `huggingface_hub` refuses it.
        """
        base = self.facts.base if self.facts is not None else BaseFacts()
        licensed = self if self.license else base
        data = ModelCardData(
            library_name="peft",
            pipeline_tag="image-text-to-text",
            base_model=base.model_id,
            base_model_relation="adapter" if base.model_id else None,
            datasets=list(self.datasets) or None,
            license=licensed.license,
            license_name=licensed.license_name,
            license_link=licensed.license_link,
            language=list(self.language) or None,
            tags=self.all_tags(),
            model_name=self.name if self.evaluations else None,
            eval_results=[item.eval_result() for item in self.evaluations] or None,
        )
        return data.to_dict()
