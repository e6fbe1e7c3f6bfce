"""Answers on their way to a client: an engine's, and those that the gateway gives in an engine's place."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict

_RESET = "upstream connect error or disconnect/reset before headers. reset reason: "


class Local(Exception):
    """An answer that the gateway gives itself; ``flags`` and ``details`` are for the access log."""

    def __init__(
        self,
        status: int,
        details: str,
        *,
        body: bytes = b"",
        flags: str = "",
        headers: CIMultiDict[str] | None = None,
    ) -> None:
        super().__init__(details)
        self.status = status
        self.details = details
        self.body = body
        self.flags = flags
        self.headers = CIMultiDict(headers or {})
        if body:
            self.headers.setdefault("content-type", "text/plain")
        self.headers["content-length"] = str(len(body))


@dataclass
class Source:
    """An answer before the router has seen it: an engine's, or one that the gateway gives in its place.

    ``over()`` says whether the piece that was handed out last is known to be the last.
    """

    status: int
    headers: CIMultiDict[str]
    pieces: AsyncIterator[bytes]
    empty: bool
    over: Callable[[], bool] = lambda: False


@contextmanager
def failures_as_answers() -> Iterator[None]:
    """Failures of the connection to an engine, as the answers that Envoy gives to them."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL):
        text = _RESET + "remote connection failure"
        raise Local(503, "upstream_reset_before_response_started", body=text.encode(), flags="UF") from None
    except aiohttp.ClientResponseError:
        text = _RESET + "protocol error"
        raise Local(502, "upstream_reset_before_response_started", body=text.encode(), flags="UPE") from None
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        text = _RESET + "connection termination"
        raise Local(503, "upstream_reset_before_response_started", body=text.encode(), flags="UC") from None


async def read(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """An engine's body; Local when it breaks off."""
    try:
        async for piece in answer.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        details = "upstream_reset_after_response_started"
        raise Local(0, details, flags="UC") from None


def in_place(local: Local) -> Source:
    """An answer of the gateway's own, in the form of an engine's."""
    headers, pieces = CIMultiDict(local.headers), pieces_of(local.body)
    return Source(local.status, headers, pieces, not local.body, lambda: True)


async def pieces_of(body: bytes) -> AsyncIterator[bytes]:
    """A body that is all there, in one piece or none."""
    if body:
        yield body


def is_empty(method: str, answer: aiohttp.ClientResponse) -> bool:
    """Whether an answer has no body."""
    return method == "HEAD" or answer.status in {204, 304} or answer.headers.get("content-length") == "0"


def first_address(value: str) -> str:
    """The first of the destinations in a header, "" when that is no address with a port: names are not looked up."""
    first = value.split(",")[0].strip()
    host, _, port = first.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return ""
    return first if port.isdecimal() and 0 < int(port) < 65536 else ""
