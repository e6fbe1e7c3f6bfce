"""A Kubernetes API of one kind of object on a local port, with the faults of real ones on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

Doc = dict[str, Any]


def wait_until(what: str, look: Callable[[], Any], limit: float = 10) -> Any:
    """The first true result of `look`; AssertionError with `what` after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {limit} s: {what}")


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Doc | None


@dataclass
class Answer:
    """What to answer instead of the usual. `cut`: close in the middle of the body; `mute`: never answer."""

    status: int = 200
    body: Doc | str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    mute: bool = False
    dribble: float = 0.0


class FakeApi:
    """Objects by name, one version counter, watches; `lists`, `watches` and `writes` script the next
    answers."""

    def __init__(self) -> None:
        self.objects: dict[str, Doc] = {}
        self.version = 100
        self.events: list[tuple[int, Doc]] = []
        self.oldest = 0  # watches from below this version get 410
        self.lists: deque[Answer] = deque()
        self.watches: deque[Answer] = deque()
        self.writes: deque[Answer] = deque()
        self.always_watch: Answer | None = None
        self.asked: list[Asked] = []
        self.changed = threading.Condition()
        self.frozen = False
        self.sockets: set[socket.socket] = set()
        self.stopped = threading.Event()
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.api = self

    def __enter__(self) -> FakeApi:
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self.drop_watches()
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def put(self, name: str, **labels: str) -> Doc:
        """Create or change an object; watches hear of it."""
        with self.changed:
            self.version += 1
            kind = "MODIFIED" if name in self.objects else "ADDED"
            metadata = {
                "name": name,
                "namespace": "work",
                "uid": f"uid-{name}",
                "resourceVersion": str(self.version),
                "labels": labels,
            }
            item = {"metadata": metadata}
            self.objects[name] = item
            self.events.append((self.version, {"type": kind, "object": item}))
            self.changed.notify_all()
            return item

    def drop(self, name: str, *, silently: bool = False) -> None:
        """Delete an object; `silently` leaves watches without an event, as one that was lost."""
        with self.changed:
            self.version += 1
            item = self.objects.pop(name)
            gone = item | {"metadata": item["metadata"] | {"resourceVersion": str(self.version)}}
            if not silently:
                self.events.append((self.version, {"type": "DELETED", "object": gone}))
            self.changed.notify_all()

    def bookmark(self, version: int | None = None) -> None:
        """Send a bookmark to the watches."""
        with self.changed:
            self.version = version or self.version + 1
            item = {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}
            self.events.append((self.version, {"type": "BOOKMARK", "object": item}))
            self.changed.notify_all()

    def send_error(self, code: int) -> None:
        """Send an ERROR event, as a server does whose watch cache has moved on."""
        with self.changed:
            status = {
                "kind": "Status",
                "code": code,
                "reason": "Expired",
                "message": "too old resource version",
            }
            self.events.append((self.version + 1, {"type": "ERROR", "object": status}))
            self.version += 1
            self.changed.notify_all()

    def drop_watches(self) -> None:
        """Reset the connections of all open watches."""
        with self.changed:
            for each in list(self.sockets):
                with suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.shutdown(socket.SHUT_RDWR)
            self.changed.notify_all()

    def count(self, kind: str) -> int:
        """How many lists (first pages) or watches were asked for."""
        if kind == "watch":
            return sum(1 for each in self.asked if "watch" in each.query)
        return sum(
            1
            for each in self.asked
            if each.method == "GET" and "watch" not in each.query and "continue" not in each.query
        )


class _Server(ThreadingHTTPServer):
    api: FakeApi
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        api = self.server.api
        asked = self._note(None)
        if "watch" in asked.query:
            answer = api.watches.popleft() if api.watches else api.always_watch
            if answer:
                self._answer(answer)
            else:
                self._watch(int(asked.query["resourceVersion"]), float(asked.query["timeoutSeconds"]))
        elif api.lists:
            self._answer(api.lists.popleft())
        else:
            self._list(asked)

    def _write(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = self._note(json.loads(self.rfile.read(length)))
        api = self.server.api
        self._answer(api.writes.popleft() if api.writes else Answer(body=asked.body or {}))

    do_POST = do_PUT = do_PATCH = do_DELETE = _write

    def _note(self, body: Doc | None) -> Asked:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        asked = Asked(self.command, parts.path, query, dict(self.headers), body)
        self.server.api.asked.append(asked)
        return asked

    def _answer(self, answer: Answer) -> None:
        if answer.mute:
            self.server.api.stopped.wait(20)
            self.close_connection = True
            return
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        data = body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            if answer.dribble:
                for byte in data:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(answer.dribble)
            else:
                self.wfile.write(data[: len(data) // 2] if answer.cut else data)
        if answer.cut:
            self.close_connection = True

    def _list(self, asked: Asked) -> None:
        api = self.server.api
        with api.changed:
            names = sorted(api.objects)
            start = int(asked.query.get("continue", 0))
            limit = int(asked.query.get("limit", 500))
            items = [api.objects[name] for name in names[start : start + limit]]
            metadata = {"resourceVersion": str(api.version)}
            if start + limit < len(names):
                metadata["continue"] = str(start + limit)
        self._answer(Answer(body={"items": items, "metadata": metadata}))

    def _watch(self, version: int, timeout: float) -> None:
        api = self.server.api
        if version < api.oldest:
            self._answer(
                Answer(410, {"code": 410, "reason": "Expired", "message": "too old resource version"})
            )
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        end = time.monotonic() + timeout
        with api.changed:
            api.sockets.add(self.connection)
            place = 0
            with suppress(OSError):
                while time.monotonic() < end and not api.stopped.is_set():
                    while not api.frozen and place < len(api.events):
                        at, event = api.events[place]
                        place += 1
                        if at > version:
                            self._chunk(json.dumps(event).encode() + b"\n")
                    api.changed.wait(min(0.05, max(0.0, end - time.monotonic())))
                self._chunk(b"")
            api.sockets.discard(self.connection)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
