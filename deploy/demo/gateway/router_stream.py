"""A router asked about one request: ext_proc from the proxy's side, with bodies streamed as Envoy streams them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2  # type: ignore[import-untyped]
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2 as modes  # type: ignore[import-untyped]
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc  # type: ignore[import-untyped]
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from multidict import CIMultiDict

from deploy.demo.gateway.world import Pool

# A queue of the router may hold a request for many minutes: as long as Envoy's message_timeout.
PATIENCE_S = 1000.0
_GOODBYE_S = 1.0
# Pieces of a response that wait for a slow client; the router is not read meanwhile.
_PIECES = 64
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # A router that is back must be found at once; connecting takes a second at most.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 200),
)
_STREAMED = modes.ProcessingMode.FULL_DUPLEX_STREAMED
_Actions = base_pb2.HeaderValueOption.HeaderAppendAction


class RouterFailed(RuntimeError):
    """The router cannot be reached, or ended the stream before it had answered; ``code`` is gRPC's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Refused(RuntimeError):
    """The router answers the request itself."""

    def __init__(self, immediate: Any) -> None:
        super().__init__(immediate.details)
        self.status = int(immediate.status.code) or 200
        self.body = bytes(immediate.body)
        self.details = str(immediate.details).replace(" ", "_") or "ext_proc"
        self.headers: CIMultiDict[str] = CIMultiDict()
        change_headers(self.headers, immediate.headers)


# --- channels


class _Line:
    """One router's channel; closed when it is not wanted any more and its last stream is over."""

    def __init__(self, address: str, authority: str) -> None:
        options = (*_OPTIONS, ("grpc.default_authority", authority))
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self.stub = ext_proc_grpc.ExternalProcessorStub(self._channel)
        self.streams = 0
        self.retired = False

    async def close(self) -> None:
        await self._channel.close()


@dataclass
class _Turn:
    """How far the round over a pool's routers is."""

    next: int = 0


class Routers:
    """Channels to all routers. Each of a pool's routers is asked in turn."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}
        self._turns: dict[str, _Turn] = {}
        self._later: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def ask(self, pool: Pool) -> AsyncIterator[RouterStream]:
        """A stream to the pool's next router, for one request; ended afterwards however that went."""
        line = self._next(pool)
        line.streams += 1
        stream = RouterStream(line.stub.Process())
        finished = False
        try:
            yield stream
            finished = True
        finally:
            if not finished:
                stream.cancel()
            self._do_later(self._end(line, stream))

    def _next(self, pool: Pool) -> _Line:
        turn = self._turns.setdefault(pool.full_name, _Turn())
        turn.next += 1
        key = (pool.routers[turn.next % len(pool.routers)], pool.authority)
        if key not in self._lines:
            self._lines[key] = _Line(*key)
        return self._lines[key]

    async def _end(self, line: _Line, stream: RouterStream) -> None:
        await stream.end()
        line.streams -= 1
        if line.retired and not line.streams:
            await line.close()

    def keep(self, pools: Iterable[Pool]) -> None:
        """From now on these pools are served: nothing new is asked of other routers."""
        listed = list(pools)
        wanted = {(router, pool.authority) for pool in listed for router in pool.routers}
        for key in self._lines.keys() - wanted:
            line = self._lines.pop(key)
            line.retired = True
            if not line.streams:
                self._do_later(line.close())
        named = {pool.full_name for pool in listed}
        self._turns = {name: turn for name, turn in self._turns.items() if name in named}

    def _do_later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def close(self) -> None:
        """End everything."""
        for task in list(self._later):
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        for line in self._lines.values():
            await line.close()
        self._lines.clear()


# --- one stream


class RouterStream:
    """Messages of one request to a router, and its answers by kind.

    `head` and `pieces` raise what ended the stream early: RouterFailed, Refused, or what `fail` was given.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._answers: dict[str, deque[Any]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._room = asyncio.Event()
        self._over: Exception | None = None
        self._reader = asyncio.create_task(self._read())

    # --- to the router

    async def send_headers(self, kind: str, fields: Iterable[tuple[str, str]], *, end: bool) -> None:
        """The headers of a "request" or "response", pseudo headers first; RouterFailed when it hears nothing more."""
        values = [base_pb2.HeaderValue(key=name, raw_value=_raw(value)) for name, value in fields]
        headers = ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=values), end_of_stream=end)
        message = ext_proc.ProcessingRequest(**{f"{kind}_headers": headers})
        if kind == "request":
            message.protocol_config.request_body_mode = _STREAMED
            message.protocol_config.response_body_mode = _STREAMED
        await self._send(message)

    async def send_piece(self, kind: str, piece: bytes, *, end: bool = False) -> None:
        """A piece of a "request" or "response" body; RouterFailed when the router hears nothing more."""
        body = ext_proc.HttpBody(body=piece, end_of_stream=end)
        await self._send(ext_proc.ProcessingRequest(**{f"{kind}_body": body}))

    async def _send(self, message: Any) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as problem:
            raise _failed(problem) from None
        except asyncio.InvalidStateError as problem:
            raise RouterFailed(grpc.StatusCode.UNAVAILABLE.value[0], str(problem)) from None

    # --- from the router

    async def head(self, kind: str) -> Any:
        """What the router changes in the headers of a "request" or "response", as a HeaderMutation.

        Raises TimeoutError after PATIENCE_S.
        """
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._next(f"{kind}_headers")
        return answer.response.header_mutation

    async def pieces(self, kind: str) -> AsyncIterator[bytes]:
        """The body of a "request" or "response" as the router hands it back, to its end."""
        while True:
            answer = await self._next(f"{kind}_body")
            streamed = answer.response.body_mutation.streamed_response
            if streamed.body:
                yield streamed.body
            if streamed.end_of_stream:
                return

    async def _next(self, kind: str) -> Any:
        waiting = self._waiting(kind)
        news = self._news[kind]
        while not waiting:
            if self._over is not None:
                raise self._over
            news.clear()
            await news.wait()
        self._room.set()
        return waiting.popleft()

    def _waiting(self, kind: str) -> deque[Any]:
        if kind not in self._answers:
            self._answers[kind], self._news[kind] = deque(), asyncio.Event()
        return self._answers[kind]

    async def _read(self) -> None:
        try:
            while (answer := await self._call.read()) is not grpc.aio.EOF:
                kind = answer.WhichOneof("response")
                if kind == "immediate_response":
                    self.fail(Refused(answer.immediate_response))
                    return
                waiting = self._waiting(str(kind))
                waiting.append(getattr(answer, kind) if kind else None)
                self._news[str(kind)].set()
                # Pieces of the request wait without a limit: the router holds that whole body anyway.
                while kind == "response_body" and len(waiting) > _PIECES:
                    self._room.clear()
                    await self._room.wait()
            self.fail(RouterFailed(0, "the router ended the stream"))
        except grpc.aio.AioRpcError as problem:
            self.fail(_failed(problem))

    # --- the end

    def fail(self, problem: Exception) -> None:
        """Let whoever waits for the router know that nothing more comes; what came before is still handed out."""
        if self._over is None:
            self._over = problem
        for news in self._news.values():
            news.set()

    def cancel(self) -> None:
        """Drop the request: the router learns that its client left."""
        self._call.cancel()

    async def end(self) -> None:
        """Say goodbye, and wait a moment for the router to have done with it."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.done_writing()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._reader)
        except (TimeoutError, asyncio.CancelledError):
            self._reader.cancel()
        finally:
            self._call.cancel()


def _failed(problem: grpc.aio.AioRpcError) -> RouterFailed:
    return RouterFailed(problem.code().value[0], f"{problem.code().name}: {problem.details()}")


def _raw(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


# --- headers


def header_fields(first: Mapping[str, str], headers: CIMultiDict[str]) -> Iterator[tuple[str, str]]:
    """Headers as a router sees them: pseudo headers, then the others with their names in lower case."""
    yield from first.items()
    for name, value in headers.items():
        if name.lower() != "host":
            yield name.lower(), value


def change_headers(headers: CIMultiDict[str], mutation: Any) -> None:
    """What a router wants changed, within Envoy's default rules: not the host, no pseudo headers, none of Envoy's."""
    for name in mutation.remove_headers:
        if _may_change(name):
            headers.popall(name, None)
    for option in mutation.set_headers:
        name = option.header.key
        if not _may_change(name):
            continue
        raw = option.header.raw_value
        value = raw.decode("utf-8", "surrogateescape") if raw else option.header.value
        if option.HasField("append"):
            action = _Actions.Value(
                "APPEND_IF_EXISTS_OR_ADD" if option.append.value else "OVERWRITE_IF_EXISTS_OR_ADD"
            )
        else:
            action = option.append_action
        _set_header(headers, name, value, _Actions.Name(action))


def _may_change(name: str) -> bool:
    name = name.lower()
    return name != "host" and not name.startswith((":", "x-envoy-"))


def _set_header(headers: CIMultiDict[str], name: str, value: str, action: str) -> None:
    there = name in headers
    if (action == "ADD_IF_ABSENT" and there) or (action == "OVERWRITE_IF_EXISTS" and not there):
        return
    if action.startswith("OVERWRITE"):
        headers.popall(name, None)
    headers.add(name, value)
