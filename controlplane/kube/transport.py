"""HTTP to one API server: the `kubernetes` package gives kubeconfig, credentials, TLS and connections, no
more.

Nothing is retried here: a retry that the caller does not know of is a second write. What left the process is
tracked on the connection itself, so "nothing was sent" is a fact and not a guess from the kind of error.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config as kube_config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from controlplane.kube.errors import BadCredentials, KubeError, Unanswered, Unreachable, from_answer

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
_CHUNK = 1 << 16
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class _Wire(threading.local):
    """Whether the call that this thread is making has put a byte of its request on the wire."""

    sent = False


_wire = _Wire()


class _PlainConnection(HTTPConnection):
    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _wire.sent = True
        super().send(data)


class _TlsConnection(HTTPSConnection):
    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _wire.sent = True
        super().send(data)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def load_configuration(*, kubeconfig: str, context: str) -> Configuration:
    """Server, credentials and TLS settings of one context of a kubeconfig file.

    Raises BadCredentials when the file or the context is missing or wrong.
    """
    configuration = Configuration()
    try:
        kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )
    except (kube_config.ConfigException, OSError, YAMLError) as error:
        raise BadCredentials(str(error)) from error
    return configuration


def make_configuration(
    *, server: str, token: str = "", ca_file: str = "", verify: bool = True
) -> Configuration:
    """Settings for a server address with a bearer token."""
    configuration = Configuration(host=server)
    configuration.verify_ssl = verify
    configuration.ssl_ca_cert = ca_file or None
    if token:
        configuration.api_key["authorization"] = f"Bearer {token}"
    return configuration


class Transport:
    """Calls to one API server over its own connections. Thread-safe; no threads of its own."""

    def __init__(self, configuration: Configuration) -> None:
        # A dead peer is noticed within 25 s even where nothing is being sent.
        configuration.socket_options = tcp_keepalive_socket_options(idle=10, interval=5, count=3)
        configuration.retries = False
        self.configuration = configuration
        self._api = ApiClient(configuration)
        self._api.user_agent = "lockstep"
        self._api.rest_client.pool_manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}

    def call(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        query: Json | None = None,
        body: Any = None,
        content_type: str = "application/json",
        verb: str = "",
        dry_run: bool = False,
    ) -> Json:
        """One request and its whole answer as JSON, within `timeout` seconds. Raises KubeError, see
        errors.py."""
        deadline = time.monotonic() + timeout
        write = method in _WRITES and not dry_run
        response = self._open(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            timeout=timeout,
            verb=verb,
            write=write,
        )
        try:
            data = _read_all(response, deadline)
        except (HTTPError, OSError) as error:
            response.close()
            raise _silence(error, verb=verb, target=path, write=write) from error
        if not 200 <= response.status <= 299:
            raise from_answer(
                data,
                status=response.status,
                verb=verb,
                target=path,
                retry_after=response.headers.get("Retry-After", ""),
                write=write,
            )
        return _decode(data, verb=verb, target=path, write=write)

    def stream(self, path: str, *, timeout: float, read_timeout: float, query: Json, verb: str) -> Stream:
        """Open a watch. The answer must begin within `timeout`; after that silence may last
        `read_timeout`."""
        response = self._open(
            "GET",
            path,
            query=query,
            body=None,
            content_type="",
            timeout=(timeout, timeout),
            verb=verb,
            write=False,
        )
        if response.status != 200:
            try:
                data = _read_all(response, time.monotonic() + timeout)
            except (HTTPError, OSError) as error:
                response.close()
                raise _silence(error, verb=verb, target=path, write=False) from error
            raise from_answer(
                data,
                status=response.status,
                verb=verb,
                target=path,
                retry_after=response.headers.get("Retry-After", ""),
            )
        _set_timeout(response, read_timeout)
        return Stream(response, target=path)

    def close(self) -> None:
        """Close every connection. A stream that is being read ends too, once it is closed by its owner."""
        self._api.close()  # type: ignore[no-untyped-call]

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Json | None,
        body: Any,
        content_type: str,
        timeout: float | tuple[float, float],
        verb: str,
        write: bool,
    ) -> urllib3.HTTPResponse:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        _, url, headers, _, _ = self._api.param_serialize(
            method, path, header_params=headers, auth_settings=["BearerToken"]
        )
        if query:
            url += "?" + urlencode(query)
        _wire.sent = False
        try:
            answer = self._api.call_api(method, url, headers, body=body, _request_timeout=timeout)
        except ApiException as error:
            # The package wraps TLS errors; the certificate is refused before anything is sent.
            raise _silence(error.__context__ or error, verb=verb, target=path, write=write) from error
        except (HTTPError, OSError, ssl.SSLError) as error:
            raise _silence(error, verb=verb, target=path, write=write) from error
        response: urllib3.HTTPResponse = answer.response
        return response


class Stream:
    """The lines of an open watch. One thread iterates; any thread may close it, which ends the iteration."""

    def __init__(self, response: urllib3.HTTPResponse, *, target: str) -> None:
        self._response = response
        self._target = target
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        try:
            while not self._closed.is_set():
                chunk = self._response.read1(_CHUNK)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: the connection was taken away by close() in another thread.
            if not self._closed.is_set():
                raise _silence(error, verb="watch", target=self._target, write=False) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End the iteration, also while it waits for data."""
        self._closed.set()
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            pass  # already at its end


def _set_timeout(response: urllib3.HTTPResponse, seconds: float) -> None:
    sock = getattr(response.connection, "sock", None)
    if sock is not None:
        sock.settimeout(max(0.05, seconds))


def _read_all(response: urllib3.HTTPResponse, deadline: float) -> bytes:
    """The whole body. Each read waits only as long as the call still has, so a dribbling server cannot hold
    it."""
    parts: list[bytes] = []
    while True:
        _set_timeout(response, deadline - time.monotonic())
        part = response.read1(_CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer did not end in time")


def _decode(data: bytes, *, verb: str, target: str, write: bool) -> Json:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise _silence(error, verb=verb, target=target, write=write) from error
    if not isinstance(document, dict):
        raise _silence(ValueError("not a JSON object"), verb=verb, target=target, write=write)
    return document


def _silence(error: BaseException, *, verb: str, target: str, write: bool) -> KubeError:
    """What the absence of a whole answer means: for a write that left the process, nobody knows."""
    sentence = f"{type(error).__name__}: {error}"
    if write and _wire.sent:
        return Unanswered(sentence, verb=verb, target=target)
    return Unreachable(sentence, verb=verb, target=target)
