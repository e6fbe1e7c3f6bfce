"""Completions over HTTP, through the gateway or at an engine itself. Every call has a timeout and a size limit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from django.conf import settings

from controlplane.errors import Unavailable

Json = dict[str, Any]

TIMEOUT_S = 15.0
LARGEST_ANSWER = 2_000_000  # bytes
DROPPED_REASON = "x-llm-d-request-dropped-reason"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4000}")
SERVED_BY = "x-gateway-destination-endpoint-served"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `status` is None where nothing did; `detail` says why. Header names are in lower case."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    detail: str = ""

    @property
    def usage(self) -> Mapping[str, Any]:
        """The token counts of a completion."""
        found = self.document.get("usage")
        return found if isinstance(found, Mapping) else {}

    @property
    def choice(self) -> Mapping[str, Any]:
        """The first choice of a completion; empty where there is none."""
        choices = self.document.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        return first if isinstance(first, Mapping) else {}


class Line:
    """One address for completions, with the headers that go with every request. Usable by several threads."""

    def __init__(
        self, base: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._base = base.rstrip("/")
        self._headers = {"content-type": "application/json", **(headers or {})}
        self._total = timeout_s
        self._timeout = urllib3.Timeout(connect=min(5.0, timeout_s), total=timeout_s)
        self._pool = urllib3.PoolManager(maxsize=16, retries=False)

    def close(self) -> None:
        """Drop idle connections."""
        self._pool.clear()

    def complete(self, body: Json, *, headers: Mapping[str, str] | None = None) -> Reply:
        """POST /v1/completions. Never raises for what the other side does."""
        begun = time.monotonic()
        try:
            answer = self._pool.request(
                "POST",
                f"{self._base}/v1/completions",
                body=json.dumps(body).encode(),
                headers={**self._headers, **(headers or {})},
                timeout=self._timeout,
                redirect=False,
                preload_content=False,
            )
            try:
                data = self._read(answer, begun)
            finally:
                answer.release_conn()
        except (
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as error:  # the text may hold a header's value
            return Reply(None, seconds=time.monotonic() - begun, detail=f"{type(error).__name__}"[:200])
        named = {name.lower(): value for name, value in answer.headers.items()}
        seconds = time.monotonic() - begun
        if len(data) > LARGEST_ANSWER:
            return Reply(answer.status, named, seconds=seconds, detail="the answer is larger than 2 MB")
        return Reply(answer.status, named, _document(data), seconds)

    def text(self, path: str) -> str:
        """GET a page such as /metrics; "" where it cannot be had, or is larger than 2 MB."""
        begun = time.monotonic()
        try:
            answer = self._pool.request(
                "GET", self._base + path, timeout=self._timeout, redirect=False, preload_content=False
            )
            try:
                data = self._read(answer, begun)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            return ""
        return data.decode(errors="replace") if answer.status == 200 and len(data) <= LARGEST_ANSWER else ""

    def _read(self, answer: urllib3.BaseHTTPResponse, begun: float) -> bytes:
        """The body, up to one byte too many; TimeoutError when it has not ended in the time of the whole call."""
        data = b""
        while len(data) <= LARGEST_ANSWER:
            if time.monotonic() - begun > self._total:
                raise TimeoutError("the answer did not end in time")
            part = answer.read1(65536) if hasattr(answer, "read1") else answer.read(65536)
            if not part:
                break
            data += part
        return data


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):  # nested without end
        return {}
    return found if isinstance(found, Mapping) else {}


def read_credential(name: str, *, url: str) -> dict[str, str]:
    """The headers that probes of a pool carry to `url`, from the file that workers hold; {} for no name.

    The file names the addresses that it is for: whoever may edit the settings of a pool must not be able to have the
    headers sent elsewhere. Raises Unavailable `no-probe-credential`; what the file says is in no error.
    """
    if not name:
        return {}
    folder = settings.LOCKSTEP_PROBE_CREDENTIALS
    path = Path(folder) / name if folder else None
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError):
        found = None
    headers = found.get("headers") if isinstance(found, dict) else None
    if not isinstance(headers, dict) or not all(_is_header(*each) for each in headers.items()):
        raise _no_credential(f"This worker has no usable headers for the credential {name!r}.")
    urls = found["urls"] if isinstance(found, dict) and "urls" in found else None
    if not isinstance(urls, list) or url.rstrip("/") not in {str(each).rstrip("/") for each in urls}:
        raise _no_credential(f"The credential {name!r} is not for the probe address of this pool.")
    return dict(headers)


def _is_header(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and bool(_HEADER_NAME.fullmatch(name))
        and bool(_HEADER_VALUE.fullmatch(value))
    )


def _no_credential(sentence: str) -> Unavailable:
    return Unavailable(
        "no-probe-credential",
        sentence,
        next_action="Mount LOCKSTEP_PROBE_CREDENTIALS with a file of that name: urls it is for, and headers.",
    )
