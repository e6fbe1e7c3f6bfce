"""Routers (ext_proc servers) and engines (HTTP servers) of the tests, each at an address of its own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from envoy.type.v3 import http_status_pb2

from tests.demo.gateway.stage import Stage

PIECE = 32 * 1024


@dataclass
class Seen:
    """What a router saw of one request."""

    headers: dict[str, str]
    bytes: int = 0


class Router(pb_grpc.ExternalProcessorServicer):
    """Sends every request to ``destination``, as routers of inference pools do: after the whole body.

    It asks Envoy to choose the route again, and renames what a route may have matched on: both must have no effect.
    ``hold()`` keeps requests in its queue, ``refuse`` answers with that status instead. ``open`` streams are those of
    requests that are not over.
    """

    def __init__(self, stage: Stage, name: str, destination: str, ip: str = "") -> None:
        self._stage = stage
        self.name = name
        self.destination = destination
        self.prefiller = "127.9.9.9:8000"
        self.ip = ip or stage.address()
        self.refuse = 0
        self.seen: list[Seen] = []
        self.waiting = 0
        self.open = 0
        stage.run(self._start())

    async def _start(self) -> None:
        self._free = asyncio.Event()
        self._free.set()
        self._server = grpc.aio.server()
        pb_grpc.add_ExternalProcessorServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"{self.ip}:9002")
        await self._server.start()

    def hold(self) -> None:
        """Answer nobody until ``release``."""
        self._stage.call(self._free.clear)

    def release(self) -> None:
        """Answer again."""
        self._stage.call(self._free.set)

    def close(self) -> None:
        """End the server at once."""
        self._stage.run(self._server.stop(0))

    async def Process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: Any
    ) -> AsyncIterator[pb.ProcessingResponse]:
        self.open += 1
        try:
            async for answer in self._process(messages):
                yield answer
        finally:
            self.open -= 1

    async def _process(
        self, messages: AsyncIterator[pb.ProcessingRequest]
    ) -> AsyncIterator[pb.ProcessingResponse]:
        seen = Seen({})
        pieces: list[bytes] = []
        async for message in messages:
            kind = message.WhichOneof("request")
            if kind == "request_headers":
                for header in message.request_headers.headers.headers:
                    seen.headers[header.key] = (header.raw_value or header.value.encode()).decode()
                self.seen.append(seen)
                if message.request_headers.end_of_stream:
                    yield await self._chosen()
            elif kind == "request_body":
                pieces.append(message.request_body.body)
                seen.bytes += len(message.request_body.body)
                if message.request_body.end_of_stream:
                    yield await self._chosen()
                    if not self.refuse:
                        for response in _body("request_body", b"".join(pieces)):
                            yield response
            elif kind == "response_headers":
                common = pb.CommonResponse(header_mutation=_set({"x-served-by": self.name}))
                yield pb.ProcessingResponse(response_headers=pb.HeadersResponse(response=common))
            elif kind == "response_body":
                body = message.response_body
                yield _streamed("response_body", body.body, body.end_of_stream)
            elif kind == "response_trailers":
                yield pb.ProcessingResponse(response_trailers=pb.TrailersResponse())

    async def _chosen(self) -> pb.ProcessingResponse:
        self.waiting += 1
        try:
            await self._free.wait()
        finally:
            self.waiting -= 1
        if self.refuse:
            return pb.ProcessingResponse(
                immediate_response=pb.ImmediateResponse(
                    status=http_status_pb2.HttpStatus(code=self.refuse),  # type: ignore[arg-type]
                    headers=_set({"x-llm-d-request-dropped-reason": "rejected-by-test"}),
                )
            )
        headers = {
            "x-gateway-destination-endpoint": self.destination,
            "x-prefiller-host-port": self.prefiller,
            "x-routed-by": self.name,
            "x-tier": "changed-by-router",
        }
        common = pb.CommonResponse(header_mutation=_set(headers), clear_route_cache=True)
        return pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=common))


def _set(headers: dict[str, str]) -> pb.HeaderMutation:
    options = [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=key, raw_value=value.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for key, value in headers.items()
    ]
    return pb.HeaderMutation(set_headers=options)


def _body(kind: str, body: bytes) -> list[pb.ProcessingResponse]:
    starts = range(0, max(len(body), 1), PIECE)
    return [_streamed(kind, body[at : at + PIECE], at + PIECE >= len(body)) for at in starts]


def _streamed(kind: str, body: bytes, end: bool) -> pb.ProcessingResponse:
    streamed = pb.StreamedBodyResponse(body=body, end_of_stream=end)
    common = pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=streamed))
    return pb.ProcessingResponse(**{kind: pb.BodyResponse(response=common)})


@dataclass
class Engine:
    """An HTTP server at its own address, port 8000: says what it got; on /stream one line for each ``send()``.

    While ``dying`` it resets connections instead of answering; ``cut()`` resets a stream.
    """

    stage: Stage
    name: str
    headers: list[dict[str, str]] = field(default_factory=list)
    left: int = 0
    ip: str = ""
    dying: bool = False

    def __post_init__(self) -> None:
        self.ip = self.ip or self.stage.address()
        self.address = f"{self.ip}:8000"
        self.stage.run(self._start())

    async def _start(self) -> None:
        self._lines: asyncio.Queue[bytes | None | type[ConnectionResetError]] = asyncio.Queue()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/stream", self._stream)
        app.router.add_route("*", "/{any:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.ip, 8000).start()

    def send(self, line: bytes | None) -> None:
        """Send one line on /stream, or end it by None."""
        self.stage.call(self._lines.put_nowait, line)

    def cut(self) -> None:
        """Reset the connection of a stream, as a crash would."""
        self.stage.call(self._lines.put_nowait, ConnectionResetError)

    def close(self) -> None:
        """End the server."""
        self.stage.run(self._runner.cleanup())

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.dying and request.transport is not None:
            request.transport.abort()
            await asyncio.sleep(60)  # until that is noticed, which cancels
        names = {name.lower() for name in request.headers}
        headers = {name: ",".join(request.headers.getall(name)) for name in names}
        self.headers.append(headers)
        said = {
            "engine": self.name,
            "headers": headers,
            "path": request.path_qs,
            "digest": hashlib.sha256(body).hexdigest(),
        }
        answer = web.json_response(said, headers={"x-disagg-revision": f"revision-of-{self.name}"})
        answer.headers.extend([("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
        return answer

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        try:
            while (line := await self._lines.get()) is not None:
                if isinstance(line, type):
                    assert request.transport is not None
                    request.transport.abort()
                    return answer
                await answer.write(line)
        except asyncio.CancelledError:
            self.left += 1
            raise
        return answer
