"""Answers of the Hub, said so that one knows what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)

from ..errors import PushError

# What this machine lacks: a token, a file in the cache, a connection.
LOCAL = (LocalTokenNotFoundError, LocalEntryNotFoundError, OfflineModeIsEnabled)
UNREADABLE = (KeyError, JSONDecodeError)  # what huggingface_hub raises on an answer it does not expect
LOG_IN = "Log in with `hf auth login`, or pass token=... with write access."


@contextmanager
def translated(api: HfApi, repo_id: str, folder: Path, committing: bool = False) -> Iterator[None]:
    """Turn what goes wrong between this machine and the Hub into `PushError`.

    While `committing`, the commit itself is asked for, and an answer that does not come tells nothing of it.

    Raises:
        PushError: Says who asked for what, and that the same call finishes the push.
    """
    try:
        yield
    # RuntimeError: what huggingface_hub raises around a failed upload of a file.
    except (*LOCAL, HTTPError, RuntimeError, ConnectionError, TimeoutError, *UNREADABLE) as error:
        if isinstance(error, UNREADABLE) and not committing:
            raise
        known = not committing or _is_refusal(error)
        state = "was not changed" if known else "may have got the commit all the same"
        raise PushError(
            f"{_reason(error, api, repo_id)} {repo_id} {state}. The adapter is complete in {folder}; "
            "the same call pushes it again and sends only what the Hub does not have yet."
        ) from error


def _is_refusal(error: Exception) -> bool:
    """Whether the Hub answered that it did nothing, or was not asked."""
    if isinstance(error, RuntimeError):  # a file, before the commit
        return True
    cause = error if isinstance(error, HfHubHTTPError) else error.__cause__
    status = cause.response.status_code if isinstance(cause, HfHubHTTPError) and cause.response else None
    return isinstance(error, LOCAL) or (status is not None and 400 <= status < 500)


def _reason(error: Exception, api: HfApi, repo_id: str) -> str:
    if isinstance(error, LocalTokenNotFoundError):
        return f"Not logged in to {api.endpoint}. {LOG_IN}"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set. Unset it to push."
    cause = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
    if isinstance(cause, HfHubHTTPError):
        return _refused(cause, api, repo_id)
    if isinstance(error, UNREADABLE):
        return f"The answer of {api.endpoint} to the commit cannot be read ({type(error).__name__}: {error})."
    return f"The connection to {api.endpoint} failed ({type(cause).__name__}: {cause})."


def _refused(error: HfHubHTTPError, api: HfApi, repo_id: str) -> str:
    status = error.response.status_code if error.response is not None else None
    reply = error.server_message or str(error).strip().splitlines()[0]
    if status == 401:
        return f"{api.endpoint} does not know who is asking (401: {reply}). {LOG_IN}"
    if status == 403:
        name = _who(api)
        if name == repo_id.split("/")[0]:
            return (
                f"The token of {name} may not write to {repo_id} (403: {reply}). Use one with write access."
            )
        alternative = f"{name}/{repo_id.rsplit('/', 1)[-1]}" if name else "a repository of your own"
        return (
            f"{repo_id} belongs to somebody else: {name or 'this token'} may not write to it (403: {reply}). "
            f"Push to {alternative}, use a token with write access to {repo_id.split('/')[0]}, or offer a "
            "change with create_pr=True."
        )
    if status == 404:
        return (
            f"The Hub did not find {repo_id}, or something in it (404: {reply}). Check the repository and "
            "the revision; a private repository of somebody else looks like this, too."
        )
    if status in (409, 412):
        return (
            f"Somebody else pushed to {repo_id} at the same time ({status}: {reply}). Look at that commit "
            "before pushing over it."
        )
    if status == 400:
        return f"The Hub refused the content (400: {reply})."
    return f"The Hub answered {status}: {reply}"


def _who(api: HfApi) -> str | None:
    try:
        return api.whoami()["name"]
    except (HTTPError, LocalTokenNotFoundError):
        return None
