"""Images of encoded rows to an origin, from which the stores of other machines fetch them."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem
from huggingface_hub.hf_file_system import HfFileSystemResolvedBucketPath

from ..errors import PushError, TicketError
from ..processing.encoded_rows import CHECKSUM, tickets_of_row
from ..processing.images.checked_files import CheckedFiles
from ..processing.images.disk import File, file_path
from ..processing.images.kinds import PROMPT
from ..processing.images.origin import ORIGIN_VARIABLE, Origin

# Of one commit, or one request of a bucket.
BATCH_FILES, BATCH_BYTES = 1000, 256 << 20


def push_images(processing_class: Any, rows: Iterable[Mapping[str, Any]], origin: str | None = None) -> int:
    """Send what other machines need of encoded rows to the origin of their stores.

    ```python
    rows = dataset.map(encode, remove_columns=dataset.column_names)
    push_images(policy.processing_class, rows)
    ```

    Images, and notes with the rows' prompts and columns, are written as files; what is there is not sent
    again. Whoever may read the origin may read them: use a private bucket or dataset.

    Args:
        processing_class: `policy.processing_class` that encoded the rows, with its store.
        rows: Rows of `encode_prompt`, or with texts of `policy.tokenizer.with_tickets`.
        origin: As in `ImageStore`. Default: that of the store. On the Hub, its bucket or repository has to
            exist.

    Returns:
        The number of files that were sent; 0 on processes other than the first.

    Raises:
        PushError: If the origin cannot be written. What was sent stays, and the same call sends the rest.
        TicketError: If this machine lacks the image of a row; names the row.
        ValueError: If there is no origin, or no row has a ticket.
    """
    files = processing_class.image_store.files
    place = files.origin if origin is None else Origin(str(origin))
    if place is None:
        raise ValueError(
            f"Got no origin. Expected one in {ORIGIN_VARIABLE}, ImageStore(origin=...) or origin=..., "
            "such as a folder that all machines see."
        )
    if os.environ.get("RANK", "0") != "0":
        return 0
    named = (_named(processing_class, index, row) for index, row in enumerate(rows))
    names = list(dict.fromkeys(itertools.chain.from_iterable(named)))
    if not names:
        raise ValueError("No row has a ticket. Expected rows of encode_prompt or with_tickets.")
    there, sent = place.names(), 0
    for batch in _batches(files, [name for name in names if file_path(*name) not in there]):
        try:
            _send(place, batch)
        except Exception as error:  # file systems have no base of their errors
            raise PushError(
                f"The origin {place.url} cannot be written: {error}. The {sent} files that were sent stay, "
                "and the same call sends the rest."
            ) from error
        sent += len(batch)
    return sent


def _named(processing: Any, index: int, row: Mapping[str, Any]) -> list[File]:
    """The files that a row needs on another machine."""
    store = processing.image_store
    try:
        tickets = tickets_of_row(processing, row)
        if tickets:
            return [file for ticket in tickets for file in store.files_of(ticket)]
        key = row.get(CHECKSUM)
        if key is None:
            return []
        if not store.text_prompts.has(int(key)):
            raise store.files.missing(int(key), "No note for key")
    except TicketError as error:
        raise TicketError(f"Row {index}: {error}") from error
    return [(int(key), PROMPT)]


def _batches(files: CheckedFiles, names: list[File]) -> Iterator[dict[File, bytes]]:
    """The files and their contents, for one request each time."""
    batch: dict[File, bytes] = {}
    size = 0
    for name in names:
        batch[name] = files.content(*name)
        size += len(batch[name])
        if len(batch) == BATCH_FILES or size > BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _send(place: Origin, batch: dict[File, bytes]) -> None:
    system, folder = place.file_system()
    if not isinstance(system, HfFileSystem):
        place.write(batch)
        return
    # By the file system, each file would be a commit of its own.
    root, api = system.resolve_path(folder), HfApi(endpoint=system.endpoint, token=system.token)
    prefix = f"{root.path}/" if root.path else ""
    added: list[tuple[str | Path | bytes, str]] = [
        (content, prefix + file_path(*file)) for file, content in batch.items()
    ]
    if isinstance(root, HfFileSystemResolvedBucketPath):
        api.batch_bucket_files(root.bucket_id, add=added)
        return
    api.create_commit(
        root.repo_id,
        [CommitOperationAdd(path, content) for content, path in added],
        repo_type=root.repo_type,
        revision=root.revision,
        commit_message=f"Add {len(added)} files of images and notes",
    )
