"""The HTTP session under the client: one try, one deadline, a bounded answer, no redirects, no environment.

The Prometheus package would wait for ever, try four times, follow redirects (with the headers), and read answers
of any size; proxies and a .netrc of the account would bend all of it.
"""

from __future__ import annotations

import io
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from controlplane.metrics.address import is_forbidden
from controlplane.metrics.errors import ForbiddenAddress

_CHUNK = 1 << 16


class TooLarge(Exception):
    """The answer has more bytes than are read."""


class TooSlow(Exception):
    """The answer did not end within the time of the call."""


class Broken(Exception):
    """The answer broke off."""


def _look_at_peer(connection: Any) -> None:
    peer = str(connection.sock.getpeername()[0])
    if is_forbidden(peer):
        connection.close()
        raise ForbiddenAddress(peer)


class _PlainConnection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _look_at_peer(self)


class _TlsConnection(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _look_at_peer(self)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class Adapter(HTTPAdapter):
    """One try, over connections that look whom they have reached."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Use our connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class Session(requests.Session):
    """Requests of one thread at a time. `body` and `status` are those of the last answer (0: none came)."""

    def __init__(self, *, timeout_s: float, max_bytes: int) -> None:
        super().__init__()
        self.trust_env = False
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.body = b""
        self.status = 0

    def get_redirect_target(self, resp: Any) -> None:
        """None: a redirect is an answer like any other. (The original would also read all of its body.)"""
        return None

    def request(self, method: str, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """One request and its whole answer. Raises TooLarge, TooSlow, Broken, ForbiddenAddress and what
        requests raises."""
        self.body, self.status = b"", 0
        deadline = time.monotonic() + self.timeout_s
        bounds = {"stream": True, "allow_redirects": False, "timeout": (self.timeout_s, self.timeout_s)}
        response = super().request(method, url, **(options | bounds))
        try:
            self.body = self._read(response.raw, deadline)
        finally:
            response.close()
        self.status = int(response.status_code)
        response.raw = io.BytesIO(self.body)
        return response

    def _read(self, raw: Any, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TooSlow
            sock = getattr(raw.connection, "sock", None)
            if sock is not None:
                sock.settimeout(max(0.05, left))
            try:
                part = raw.read1(_CHUNK, decode_content=True)
            except TimeoutError as error:
                raise TooSlow from error
            except (HTTPError, OSError) as error:
                raise (TooSlow if "timed out" in str(error) else Broken) from error
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > self.max_bytes:
                raise TooLarge
