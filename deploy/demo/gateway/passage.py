"""One request on its way through the proxy: rule, header edits, router, engine, and the answer back."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from deploy.demo.gateway import matching, names
from deploy.demo.gateway.access_log import Entry
from deploy.demo.gateway.answers import (
    Local,
    Source,
    failures_as_answers,
    first_address,
    in_place,
    is_empty,
    pieces_of,
    read,
)
from deploy.demo.gateway.router_stream import (
    Refused,
    RouterFailed,
    Routers,
    RouterStream,
    change_headers,
    header_fields,
)
from deploy.demo.gateway.routes import Plan
from deploy.demo.gateway.world import Pool

BODY_LIMIT = 256 * 1024 * 1024
_OWN = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # what aiohttp would add by itself
_NO_SHARE = "no backend of this rule has a weight above 0"


@dataclass
class Outside:
    """What all requests share. ``plan`` is replaced whole; a request keeps the one that it met."""

    plan: Plan
    engines: aiohttp.ClientSession
    routers: Routers = field(default_factory=Routers)
    random: Random = field(default_factory=Random)
    turns: Iterator[int] = field(default_factory=itertools.count)
    body_limit: int = BODY_LIMIT


class Passage:
    """One request. ``secret`` is what it must show, empty: nothing."""

    def __init__(
        self, outside: Outside, request: web.BaseRequest, entry: Entry, *, probe: bool, secret: str
    ) -> None:
        self._outside = outside
        self._request = request
        self._entry = entry
        self._headers = entry.headers
        self._probe, self._secret = probe, secret
        self._plan = outside.plan
        self._expects = request.headers.get("Expect", "").lower() == "100-continue"
        self._taken = 0  # of the body
        self._failure: Local | None = None  # what went wrong with the client's body

    async def answer(self) -> web.StreamResponse:
        """Serve it to its end; what could not be finished is closed, and the log entry says why."""
        try:
            pool = self._admit()
            if pool is None:
                raise Local(500, "cluster_not_found", flags="NC")
            if pool.routers:
                async with self._outside.routers.ask(pool) as stream:
                    return await self._by_router(pool, stream)
            if not pool.fail_open:
                raise Local(503, "ext_proc_error_gRPC_error_14")
            return await self._by_turn(pool)
        except Local as local:
            self._note(local)
            return await self._respond(in_place(local))

    # --- who may pass, and where to

    def _admit(self) -> Pool | None:
        """The pool of the drawn share, None for one that leads nowhere; Local when it ends here."""
        shown = matching.joined(self._headers, names.PROBE_SECRET) or ""
        if self._secret and not hmac.compare_digest(shown.encode(errors="replace"), self._secret.encode()):
            raise Local(403, "rbac_access_denied_matched_policy[none]", body=b"RBAC: access denied")
        rule = matching.find_rule(self._plan.rules, self._entry.path, self._headers)
        self._headers.popall(names.PROBE_SECRET, None)
        if rule is None:
            raise Local(404, "route_not_found", flags="NR")
        self._entry.route = rule.name
        backend = matching.draw(rule.backends, self._outside.random)
        if backend is None:
            raise Local(500, "direct_response", body=_NO_SHARE.encode())
        matching.edit(self._headers, backend.edits, probe=self._probe)
        if backend.pool is None:
            return None
        pool = self._plan.pools[backend.pool]
        self._entry.pool = pool.full_name
        return pool

    # --- with a router

    async def _by_router(self, pool: Pool, stream: RouterStream) -> web.StreamResponse:
        empty = not self._request.body_exists
        async with _beside(self._tell_request(stream, empty=empty)) as telling:
            try:
                change_headers(self._headers, await stream.head("request"))
            except RouterFailed as problem:
                await _end(telling)  # before anybody else reads the body
                if pool.fail_open and not self._taken:
                    return await self._by_turn(pool)
                raise Local(503, f"ext_proc_error_gRPC_error_{problem.code}") from None
            except TimeoutError:
                raise Local(504, "ext_proc_error_per-message_timeout_exceeded") from None
            except Refused as refused:
                raise _as_local(refused) from None
            body = None if empty else stream.pieces("request")
            async with self._sent(body, router=stream) as source:
                return await self._respond_by_router(stream, source)

    async def _tell_request(self, stream: RouterStream, *, empty: bool) -> None:
        """Headers and body to the router; the body comes back from it in pieces, so its length is the router's word."""
        if not empty:
            self._headers.popall("content-length", None)
        first = {
            ":authority": self._request.host,
            ":path": self._entry.path,
            ":method": self._request.method,
            ":scheme": "http",
        }
        try:
            await stream.send_headers("request", header_fields(first, self._headers), end=empty)
            if empty:
                return
            await _tell_pieces(stream, "request", self._body(), self._request.content.at_eof)
        except RouterFailed:
            pass  # who reads its answers learns that too
        except Exception as problem:
            stream.fail(problem)

    async def _respond_by_router(self, stream: RouterStream, source: Source) -> web.StreamResponse:
        async with _beside(_tell_response(stream, source)):
            try:
                mutation = await stream.head("response")
            except RouterFailed as problem:
                raise Local(503, f"ext_proc_error_gRPC_error_{problem.code}") from None
            except TimeoutError:
                raise Local(504, "ext_proc_error_per-message_timeout_exceeded") from None
            except Refused as refused:
                raise _as_local(refused) from None
            headers = source.headers
            if not source.empty:
                headers.popall("content-length", None)
            change_headers(headers, mutation)
            pieces = pieces_of(b"") if source.empty else stream.pieces("response")
            return await self._respond(Source(source.status, headers, pieces, source.empty))

    # --- without one

    async def _by_turn(self, pool: Pool) -> web.StreamResponse:
        """To the pool's ready engines in turn: no router answers, and the pool fails open."""
        if pool.engines and names.DESTINATION not in self._headers:
            engine = pool.engines[next(self._outside.turns) % len(pool.engines)]
            self._headers[names.DESTINATION] = engine
        body = self._body() if self._request.body_exists else None
        async with self._sent(body) as source:
            return await self._respond(source)

    # --- the engine

    @asynccontextmanager
    async def _sent(
        self, body: AsyncIterator[bytes] | None, router: RouterStream | None = None
    ) -> AsyncIterator[Source]:
        """The engine's answer to the request, or the one that takes its place; a router sees that too."""
        try:
            answer = await self._ask_engine(body)
        except Local as problem:
            if self._failure is not None or router is None:
                raise (self._failure or problem) from None
            self._note(problem)
            yield in_place(problem)
            return
        self._entry.details = "via_upstream"
        headers = matching.forwarded(CIMultiDict(answer.headers))
        empty = is_empty(self._request.method, answer)
        try:
            yield Source(answer.status, headers, read(answer), empty, answer.content.at_eof)
        finally:
            if not answer.content.at_eof():
                answer.close()  # with its connection: the engine learns that nobody reads on
            answer.release()

    async def _ask_engine(self, body: AsyncIterator[bytes] | None) -> aiohttp.ClientResponse:
        destination = first_address(self._headers.get(names.DESTINATION, ""))
        if not destination:
            raise Local(503, "no_healthy_upstream", body=b"no healthy upstream", flags="UH")
        self._headers[names.DESTINATION] = self._entry.engine = destination
        headers = matching.forwarded(self._headers)
        headers.popall("Expect", None)
        with failures_as_answers():
            return await self._outside.engines.request(
                self._request.method,
                URL(f"http://{destination}{self._entry.path}", encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                skip_auto_headers=_OWN,
            )

    async def _body(self) -> AsyncIterator[bytes]:
        """The client's body, counted; Local when it is too large or breaks off."""
        try:
            if self._expects:
                await self._request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._request.writer.output_size = 0
            async for piece in self._request.content.iter_any():
                self._taken += len(piece)
                self._entry.bytes_in = self._taken
                if self._taken > self._outside.body_limit:
                    raise self._broken(Local(413, "request_payload_too_large", body=b"Payload Too Large"))
                yield piece
        except (aiohttp.ClientError, web.RequestPayloadError, ConnectionError) as problem:
            raise self._broken(Local(400, "http1.codec_error", flags="DPE")) from problem

    def _broken(self, problem: Local) -> Local:
        self._failure = problem
        return problem

    # --- to the client

    async def _respond(self, source: Source) -> web.StreamResponse:
        entry = self._entry
        source.headers["x-request-id"] = self._headers["x-request-id"]
        response = web.StreamResponse(status=source.status, headers=source.headers)
        entry.status, entry.answered = source.status, source.headers
        if not self._plan.serving:
            response.force_close()
        await response.prepare(self._request)
        try:
            async for piece in source.pieces:
                await response.write(piece)
                entry.bytes_out += len(piece)
            await response.write_eof()
        except (Local, RouterFailed, Refused) as problem:
            # Headers are out: an answer that breaks off is the only sign left.
            self._note(problem if isinstance(problem, Local) else Local(0, "ext_proc_error"))
            if self._request.transport is not None:
                self._request.transport.close()
        return response

    def _note(self, problem: Local) -> None:
        self._entry.flags, self._entry.details = problem.flags, problem.details


# --- parts


def arrived(request: web.BaseRequest, listener: str) -> Entry:
    """What is known of a request when it comes in, with the headers that a client may send."""
    headers = matching.from_client(request.headers)
    headers.setdefault("x-request-id", str(uuid.uuid4()))
    before = headers.getall("x-forwarded-for", [])
    headers["x-forwarded-for"] = ",".join([*before, request.remote or ""])
    headers["x-forwarded-proto"] = "http"
    target = request.raw_path
    if not target.startswith("/"):  # absolute form, or *
        target = request.rel_url.raw_path_qs
    return Entry(listener, request.method, matching.clean_target(target), headers)


async def _tell_response(stream: RouterStream, source: Source) -> None:
    fields = header_fields({":status": str(source.status)}, source.headers)
    try:
        await stream.send_headers("response", fields, end=source.empty)
        if source.empty:
            return
        await _tell_pieces(stream, "response", source.pieces, source.over)
    except RouterFailed:
        pass  # who reads its answers learns that too
    except Exception as problem:
        stream.fail(problem)


async def _tell_pieces(
    stream: RouterStream, kind: str, pieces: AsyncIterator[bytes], over: Callable[[], bool]
) -> None:
    """A body to the router, each piece as it comes; the end has a message of its own where it was not known before."""
    ended = False
    async for piece in pieces:
        ended = over()
        await stream.send_piece(kind, piece, end=ended)
    if not ended:
        await stream.send_piece(kind, b"", end=True)


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coroutine beside a block, and end it with the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        await _end(task)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _as_local(refused: Refused) -> Local:
    return Local(refused.status, refused.details, body=refused.body, headers=refused.headers)
