"""Answers of the Hub, said so that one knows what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager
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

LOG_IN = "Log in with `hf auth login`, or pass token=... with write access."


@contextmanager
def translated(api: HfApi, repo_id: str, folder: Path) -> Iterator[None]:
    """Turn what goes wrong between this machine and the Hub into `PushError`.

    Args:
        api: The Hub.
        repo_id: Where the push goes.
        folder: What is complete on this machine.

    Raises:
        PushError: Says who asked for what, and that the same call finishes the push.
    """
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise _error(f"Not logged in to {api.endpoint}. {LOG_IN}", repo_id, folder) from error
    except OfflineModeIsEnabled as error:
        raise _error("HF_HUB_OFFLINE is set. Unset it to push.", repo_id, folder) from error
    except HfHubHTTPError as error:
        raise _error(_refused(error, api, repo_id), repo_id, folder) from error
    # RuntimeError: what huggingface_hub raises around a failed upload of a file.
    except (HTTPError, LocalEntryNotFoundError, RuntimeError, ConnectionError, TimeoutError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, HfHubHTTPError):
            raise _error(_refused(cause, api, repo_id), repo_id, folder) from error
        what = f"The connection to {api.endpoint} failed ({type(cause).__name__}: {cause})."
        raise _error(what, repo_id, folder) from error


def _error(what: str, repo_id: str, folder: Path) -> PushError:
    return PushError(
        f"{what} {repo_id} was not changed. The adapter is complete in {folder}; the same call pushes it "
        "again and sends only what the Hub does not have yet."
    )


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
