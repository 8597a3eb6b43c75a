"""Images at http(s) addresses, within bounds: rows of a dataset may name any host."""

import os
import time
from typing import Any

from ...errors import ImageError

FETCH_VARIABLE = "HF_VLM_RL_FETCH"  # 0: nothing is fetched
MAX_BYTES = 64 << 20
MAX_REDIRECTS = 5
WAIT_SECONDS = 30  # to connect, and for each part of an answer
TOTAL_SECONDS = 180


def fetch(url: str) -> bytes:
    """The body that an http(s) address answers with.

    Args:
        url: The address. Redirects, of which there may be `MAX_REDIRECTS`, lead to http(s) addresses only.

    Returns:
        At most `MAX_BYTES` bytes, which took at most about `TOTAL_SECONDS` to come.

    Raises:
        ImageError: If the address cannot be reached, answers with an error, or beyond a bound; or if
            `$HF_VLM_RL_FETCH` is 0.
    """
    if os.environ.get(FETCH_VARIABLE) == "0":
        raise ImageError(
            f"Got the image {url[:200]!r}, which the environment forbids to fetch: {FETCH_VARIABLE} is 0. "
            "Download the file and name its path."
        )
    # The HTTP client of transformers and the Hub's, under the name that both use.
    from huggingface_hub.utils import httpx

    try:
        with (
            httpx.Client(follow_redirects=True, max_redirects=MAX_REDIRECTS, timeout=WAIT_SECONDS) as client,
            # Not compressed: a bound on what was unpacked comes after unpacking.
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            return _bounded_body(response)
    except Exception as error:  # the client's own errors have no common base
        raise ImageError(
            f"Cannot fetch the image {url[:200]!r}: {error}. Check the URL, or download the file."
        ) from error


def _bounded_body(response: Any) -> bytes:
    body, deadline = bytearray(), time.monotonic() + TOTAL_SECONDS
    for part in response.iter_bytes():
        body += part
        if len(body) > MAX_BYTES:
            raise ImageError(f"its body is larger than {MAX_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise ImageError(f"it took longer than {TOTAL_SECONDS} seconds")
    return bytes(body)
