"""An HTTP server that answers as a test says, with the faults of real ones."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit


@dataclass
class Reply:
    """`cut`: close in the middle of the body; `mute`: seconds of silence before it; `dribble`: seconds between
    single bytes of it."""

    body: bytes | str = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    mute: float = 0.0
    dribble: float = 0.0


@dataclass
class Question:
    """One request as it came in."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class FakeSource:
    """Answers `replies` one after the other, the last one again and again."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.asked: list[Question] = []
        self.stopped = threading.Event()
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.source = self

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, body: bytes | str, **more: object) -> None:
        """Answer so from now on."""
        self.replies = deque([Reply(body, **more)])  # type: ignore[arg-type]

    def __enter__(self) -> FakeSource:
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    source: FakeSource

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        source, parts = self.server.source, urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        source.asked.append(Question(parts.path, query, dict(self.headers.items())))
        reply = source.replies.popleft() if len(source.replies) > 1 else source.replies[0]
        source.stopped.wait(reply.mute)
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        for name, value in ({"Content-Type": "application/json"} | reply.headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if reply.cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        if reply.dribble:
            for index in range(len(body)):
                if source.stopped.is_set():
                    return
                self.wfile.write(body[index : index + 1])
                self.wfile.flush()
                time.sleep(reply.dribble)
            return
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
