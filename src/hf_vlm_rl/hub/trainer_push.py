"""`trainer.push_to_hub()` of a stock trainer, with our folder and card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo

from .cards.card import AdapterCardData
from .push import push_adapter


def push_with_card(
    trainer: Any, card: AdapterCardData | Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Make `trainer.push_to_hub()` of this one trainer push what `push_adapter` pushes.

    ```python
    push_with_card(trainer, card={"summary": "Reads handwritten digits."})
    trainer.train()
    trainer.push_to_hub()
    ```

    transformers calls no hook between TRL's `create_model_card` and the upload, and that upload takes the
    whole output directory: the pickled arguments (with `hub_token`), logs that carry the machine's name,
    paths in `adapter_config.json`. So the method itself is set, on this object; no class is changed.

    Args:
        trainer: A TRL trainer whose model has an adapter.
        card: What the card should say, as `AdapterCardData` or its fields.
        **options: Further arguments of `push_adapter`. `args.hub_model_id`, `hub_token`,
            `hub_revision` and `hub_private_repo` are the defaults.

    Returns:
        The trainer.

    Raises:
        ValueError: If the trainer uploads checkpoints by itself, which bypasses `push_to_hub`.
    """
    args = trainer.args
    if args.push_to_hub and args.hub_strategy != "end":
        raise ValueError(
            f"Got push_to_hub=True and hub_strategy={args.hub_strategy.value!r}: the trainer would upload "
            "checkpoints with pickled arguments and TRL's card while training. Set hub_strategy='end'."
        )

    def push_to_hub(
        commit_message: str | None = None,
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> CommitInfo | None:
        """As the stock `push_to_hub`; waits for the upload whatever `blocking` says."""
        if kwargs:
            raise ValueError(
                f"Got {', '.join(kwargs)} for push_to_hub. Expected what the card should say in "
                "push_with_card(trainer, card=...)."
            )
        defaults = {"token": args.hub_token, "revision": args.hub_revision, "private": args.hub_private_repo}
        call = {"commit_message": commit_message, "token": token, "revision": revision, "private": private}
        call = {name: value for name, value in call.items() if value is not None}
        repo_id = trainer.hub_model_id or args.hub_model_id or Path(args.output_dir).absolute().name
        return push_adapter(trainer, repo_id, card=card, **defaults | options | call)

    trainer.push_to_hub = push_to_hub
    return trainer
