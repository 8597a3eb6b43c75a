"""Pushing an adapter: first the complete local folder, then one commit."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import RemoteEntryNotFoundError

from ..loading.adapters.files import CONFIG, read_config
from .base_model import overridden, recorded, with_license
from .cards.adapter_facts import adapter_facts
from .cards.card import AdapterCardData
from .cards.facts import BaseFacts, CardFacts
from .cards.merge import BEGIN, merge
from .cards.render import CURVE
from .cards.run_facts import versions
from .cards.stored import FILE as STORED
from .cards.stored import stored
from .failures import translated
from .files import CARD, RESULTS, pushable
from .leaks import check_leaks
from .save import card_of, name_base, save_adapter, trainer_and_model, write_card

# What a push writes into the folder.
WRITTEN = (CONFIG, CARD, STORED, CURVE, f"{RESULTS}/*.yaml")


def push_adapter(
    trainer_or_model: Any,
    repo_id: str,
    *,
    output_dir: str | PathLike | None = None,
    card: AdapterCardData | Mapping[str, Any] | None = None,
    base_model: str | None = None,
    base_revision: str | None = None,
    processing_class: Any = None,
    **options: Any,
) -> CommitInfo | None:
    """Save an adapter completely (`save_adapter`) and push that folder as one commit.

    ```python
    trainer.train()
    push_adapter(trainer, "user/adapter", card={"summary": "Reads handwritten digits."})
    ```

    Only files of the adapter are pushed, and none that tells a secret or a path of this machine.
    What the author wrote into the card on the Hub stays. If the push fails, the folder is complete
    and the same call finishes the push; files that the Hub has are not sent again.

    Args:
        trainer_or_model: A TRL trainer whose model has an adapter, or a `PeftModel`.
        repo_id: `user/name`, or `name` for the account of the token; created if it does not exist.
        output_dir: The folder. Default: `adapter` in the trainer's output directory, or for a model
            the name of the repository in the working directory.
        card: What the card should say, as `AdapterCardData` or its fields.
        base_model: Id of the base on the Hub; needed if it was loaded from a local path.
        base_revision: Its commit, tag or branch. Default: the commit that was loaded, if known.
        processing_class: Default: the trainer's or the policy's.
        **options: Further arguments of `push_folder`: `private`, `revision`, `create_pr`, `commit_message`,
            `token`, `endpoint`.

    Returns:
        The commit, with `pr_url` for a pull request. The last one if nothing has changed. On ranks
        other than 0: None.

    Raises:
        PushError: If the Hub refused or could not be reached; says how to go on.
        ValueError: If there is no adapter; if the base's id is not known; if a file would tell a
            secret or a local path; if a public repository exists where a private one was asked for.
    """
    trainer, _ = trainer_and_model(trainer_or_model)
    if output_dir is None:
        name = repo_id.rsplit("/", 1)[-1]
        output_dir = Path(name) if trainer is None else Path(trainer.args.output_dir) / "adapter"
    files = save_adapter(
        trainer_or_model,
        output_dir,
        card=card,
        base_model=base_model,
        base_revision=base_revision,
        processing_class=processing_class,
    )
    return push_folder(output_dir, repo_id, **options) if files else None


def push_folder(
    folder: str | PathLike,
    repo_id: str,
    *,
    card: AdapterCardData | Mapping[str, Any] | None = None,
    base_model: str | None = None,
    base_revision: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> CommitInfo:
    """Push an adapter from a folder, as `save_adapter` or a trainer's `save_model` left it.

    What `save_adapter` knew of the run goes on the card again, with what `card` changes. In a folder
    from elsewhere, a card of this package stays as it is unless `card` is given; any other card is
    written anew, with what the files tell.

    Args:
        folder: With the adapter and its processor. Other files in it are not pushed.
        repo_id: `user/name`, or `name` for the account of the token; created if it does not exist.
        card: What the card should say.
        base_model: Id of the base on the Hub, if the folder's adapter names a local path.
        base_revision: Commit, tag or branch of the base.
        private: Create a private repository. Default: the account's setting.
        revision: Branch to push to; created if it does not exist. Default: "main".
        create_pr: Open a pull request (against `revision`) instead of committing to it.
        commit_message: Default: says what was pushed.
        token: Default: that of the environment or of `hf auth login`.
        endpoint: The Hub. Default: `HF_ENDPOINT`, or https://huggingface.co.

    Returns:
        The commit, with `pr_url` for a pull request. The last one if nothing has changed.

    Raises:
        PushError: If the Hub refused or could not be reached; says how to go on.
        ValueError: If the folder is not complete, or its weights are pickled; if the base's id is not known;
            if a file is not what its name says, or would tell a secret or a local path; if a public
            repository exists where a private one was asked for.
    """
    folder = Path(folder)
    pushable(folder)  # raises before anything is written
    before = _written(folder)
    with _kept_if_it_fails(folder, before):
        base = _base(folder, base_model, base_revision)
        content = _card(folder, card, base, anew=base_model is not None or base_revision is not None)
    own_version = versions(("hf-vlm-rl",)).get("hf-vlm-rl")
    api = HfApi(endpoint=endpoint, token=token, library_name="hf_vlm_rl", library_version=own_version)
    with _kept_if_it_fails(folder, before), translated(api, repo_id, folder):
        if "/" not in repo_id:
            repo_id = f"{api.whoami()['name']}/{repo_id}"
        if content is not None:
            content.repo_id = repo_id
            if not content.license:
                facts = content.filled()
                content.facts = dataclasses.replace(facts, base=with_license(facts.base, api))
            write_card(folder, content)
        files = pushable(folder)
        check_leaks(files, folder, [token])
        head = _head(api, repo_id, private, revision, create_pr, folder)
        merged = _merged(api, repo_id, head, folder, content is not None and bool(content.license))
        files.remove(folder / CARD)
        operations = [CommitOperationAdd(path.relative_to(folder).as_posix(), path) for path in files]
    with _kept_if_it_fails(folder, before), translated(api, repo_id, folder, committing=True):
        return api.create_commit(
            repo_id,
            [*operations, CommitOperationAdd(CARD, merged.encode())],
            commit_message=commit_message or "Upload adapter with hf_vlm_rl",
            revision=revision,
            create_pr=create_pr,
            # So that two pushes at the same time do not mix: the second one is refused.
            parent_commit=head,
        )


def _written(folder: Path) -> dict[Path, bytes]:
    """What a push may write into a folder, where it is there."""
    return {path: path.read_bytes() for name in WRITTEN for path in folder.glob(name) if path.is_file()}


@contextmanager
def _kept_if_it_fails(folder: Path, before: Mapping[Path, bytes]) -> Iterator[None]:
    """Leave files of a folder as they were if a block raises."""
    try:
        yield
    except BaseException:
        for path in _written(folder).keys() - before.keys():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
        raise


def _base(folder: Path, base_model: str | None, base_revision: str | None) -> BaseFacts:
    """The base of the adapter in a folder, which is written into its config if it is given."""
    config = read_config(folder)
    base = recorded(config.get("base_model_name_or_path"), config.get("revision"))
    base = overridden(base, base_model, base_revision)
    if base.model_id is None:
        raise ValueError(
            f"{folder / CONFIG} does not name the base model on the Hub: it was loaded from a local path, "
            "which nobody else has. Pass base_model='namespace/name'. Nothing was pushed; the adapter is "
            f"complete in {folder}."
        )
    name_base(folder / CONFIG, base)
    return base


def _card(folder: Path, card: Any, base: BaseFacts, anew: bool) -> AdapterCardData | None:
    """What the card of a folder should say; None if it stays as it is."""
    known, path = stored(folder), folder / CARD
    generated = path.is_file() and BEGIN in path.read_text(encoding="utf-8")
    if generated and known is None and card is None and not anew:
        return None
    content = card_of(card, known)
    if known is None:
        content.facts = CardFacts(base, adapter_facts(folder), versions=versions(("hf-vlm-rl", "peft")))
    else:
        facts = known.filled()
        merged = dataclasses.replace(base, stock=facts.base.stock, quantization=facts.base.quantization)
        content.facts = dataclasses.replace(facts, base=merged)
    return content


def _head(
    api: HfApi, repo_id: str, private: bool | None, revision: str | None, create_pr: bool, folder: Path
) -> str | None:
    """The commit to build on, of a repository and branch that exist from here on."""
    api.create_repo(repo_id, private=private, exist_ok=True)
    info = api.model_info(repo_id)
    if private and not info.private:
        raise ValueError(
            f"Got private=True, but {repo_id} exists and is public. Nothing was pushed. Make it private in "
            f"its settings, or push to another repository. The adapter is complete in {folder}."
        )
    if revision is None:
        return info.sha
    if not create_pr and not revision.startswith("refs/"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return api.model_info(repo_id, revision=revision).sha


def _merged(api: HfApi, repo_id: str, head: str | None, folder: Path, new_license: bool) -> str:
    """The card to push: the folder's, with what was written by hand into the one on the Hub."""
    content = (folder / CARD).read_text(encoding="utf-8")
    try:
        path = api.hf_hub_download(repo_id, CARD, revision=head)
    except RemoteEntryNotFoundError:
        return content
    existing = Path(path).read_text(encoding="utf-8-sig")
    return merge(content, existing, f"{CARD} of {repo_id} on the Hub", new_license)
