"""Fetches images from http(s) addresses, within bounds: rows of a dataset may name any host."""

import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any, Self

from ...errors import ImageError

FETCH_VARIABLE = "HF_VLM_RL_FETCH"  # 0: nothing is fetched
MAX_BYTES = 64 << 20
MAX_REDIRECTS = 5
WAIT_SECONDS = 30  # to connect, and for each part of an answer
TOTAL_SECONDS = 180


def fetch(url: str, what: str = "image") -> bytes:
    """The body that an http(s) address answers with, an image unless `what` says otherwise.

    Redirects, of which there may be `MAX_REDIRECTS`, lead to http(s) addresses only. It has at most
    `MAX_BYTES` bytes, which took at most about `TOTAL_SECONDS` to come.

    Raises:
        ImageError: If the address cannot be reached, answers with an error, or beyond a bound; or if
            `$HF_VLM_RL_FETCH` is 0.
    """
    if os.environ.get(FETCH_VARIABLE) == "0":
        raise ImageError(
            f"Got the {what} {url[:200]!r}, which the environment forbids to fetch: {FETCH_VARIABLE} is 0. "
            "Download the file and name its path."
        )
    # The HTTP client of transformers and the Hub's, under the name that both use.
    from huggingface_hub.utils import httpx

    try:
        with _Deadline() as deadline, httpx.Client(timeout=WAIT_SECONDS) as client:
            # Not compressed: the client would unpack a part of any size before the bound is checked.
            headers = {"Accept-Encoding": "identity"}
            request = client.build_request("GET", url, headers=headers, extensions={"trace": deadline.trace})
            for _ in range(MAX_REDIRECTS + 1):
                # One by one: the client would read the bodies of redirects, whatever their size.
                with contextlib.closing(client.send(request, stream=True)) as response:
                    if response.next_request is None:
                        response.raise_for_status()
                        body = _bounded_body(response)
                        if deadline.over:  # which looks like the end of a body without a stated length
                            raise ImageError("the connection was ended")
                        return body
                    request = response.next_request
            raise ImageError(f"more than {MAX_REDIRECTS} redirects")
    except Exception as error:  # the client's own errors have no common base
        why = f"it took longer than {TOTAL_SECONDS} seconds" if deadline.over else error
        raise ImageError(
            f"Cannot fetch the {what} {url[:200]!r}: {why}. Check the URL, or download the file."
        ) from error


class _Deadline:
    """Ends connections after `TOTAL_SECONDS`: a server may send headers, or parts of them, without end.

    `over` says whether it did.
    """

    def __init__(self) -> None:
        self.over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(TOTAL_SECONDS, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The client's account of what it does; it opens connections, and puts TLS on them."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.over:
                self._end()

    def _end(self) -> None:
        self.over = True
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)


def _bounded_body(response: Any) -> bytes:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > MAX_BYTES:
            raise ImageError(f"its body is larger than {MAX_BYTES >> 20} MiB")
    return bytes(body)
