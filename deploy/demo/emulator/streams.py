"""Watches: changes of one kind as lines of JSON, from a version on, until the time is up or the line breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.listing import encoded_as
from deploy.demo.emulator.memory import Change, Subscription
from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.problems import ApiProblem, bad_request
from deploy.demo.emulator.selectors import field_match, label_match
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
BOOKMARK_EVERY_S = 60.0
# Without timeoutSeconds a real server ends a watch at random between half an hour and a whole one.
DEFAULT_TIMEOUT_S = 1800.0


@dataclass(eq=False)
class Stream:
    """One open watch: what it is of, whose, and how to cut it."""

    kind: Kind
    user: str
    subscription: Subscription
    transport: asyncio.Transport | None = None
    cut: bool = field(default=False)

    def drop(self) -> None:
        """Break the connection without a word, as a load balancer does."""
        self.cut = True
        if self.transport is not None:
            self.transport.abort()
        self.subscription.wake()


@dataclass(frozen=True)
class Wish:
    """What a watch asks for."""

    kind: Kind
    version: str
    namespace: str
    labels: str = ""
    fields: str = ""
    since: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    bookmarks: bool = False
    initial: bool = False


class Streams:
    """All open watches of one store."""

    def __init__(self, store: Store, pace: Pace) -> None:
        self._store = store
        self._pace = pace
        self.open: list[Stream] = []

    def drop(self, fits: Callable[[Stream], bool] = lambda _: True) -> int:
        """Break watches; returns how many."""
        chosen = [stream for stream in self.open if fits(stream)]
        for stream in chosen:
            stream.drop()
        return len(chosen)

    async def serve(self, request: web.Request, wish: Wish, user: str) -> web.StreamResponse:
        """Answer a watch. A version that is too old is said within it: an ERROR event, and the end."""
        match = _match(wish)
        # Nothing is awaited between looking back and subscribing, so that no change is missed or seen twice.
        try:
            backlog = self._backlog(wish, match)
        except ApiProblem as problem:
            if problem.status != 410:
                raise
            return await _said_within(request, problem)
        subscription = self._store.memory.subscribe([wish.kind.ref])
        seen = self._store.version
        transport = request.transport if isinstance(request.transport, asyncio.Transport) else None
        stream = Stream(wish.kind, user, subscription, transport)
        self.open.append(stream)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await answer.prepare(request)
            if backlog:
                await answer.write(b"".join(backlog))
            await self._follow(answer, wish, match, stream, seen)
            return answer
        except ConnectionError:
            return answer  # nobody reads any more, or a fault has cut the line
        finally:
            self.open.remove(stream)
            subscription.close()

    async def _follow(
        self, answer: web.StreamResponse, wish: Wish, match: Callable[[Doc], bool], stream: Stream, seen: int
    ) -> None:
        loop = asyncio.get_running_loop()
        end, bookmark = loop.time() + wish.timeout_s, loop.time() + BOOKMARK_EVERY_S
        while not stream.cut and loop.time() < end:
            changes = await stream.subscription.next(min(end, bookmark) - loop.time())
            await self._pace.going()
            lines = [line for each in changes if (line := _line(wish, match, each))]
            seen = max([seen, *(each.version for each in changes)])
            if wish.bookmarks and loop.time() >= min(end, bookmark):
                # Every change of this kind up to here has been sent, so the newest version of all may be named.
                lines.append(_bookmark(wish, self._store.version))
                bookmark = loop.time() + BOOKMARK_EVERY_S
            if lines and not stream.cut:
                await answer.write(b"".join(lines))
        if not stream.cut:
            await answer.write_eof()

    def _backlog(self, wish: Wish, match: Callable[[Doc], bool]) -> list[bytes]:
        memory = self._store.memory
        if wish.since in ("", "0") or wish.initial:
            items = [doc for doc in memory.all(wish.kind, wish.namespace) if match(doc)]
            lines = [_event(wish, "ADDED", doc) for doc in items]
            return [*lines, _bookmark(wish, self._store.version, initial=True)] if wish.initial else lines
        if not wish.since.isdigit():
            raise bad_request(
                f'invalid resource version: strconv.ParseUint: parsing "{wish.since}": invalid syntax'
            )
        changes = memory.since(wish.kind, int(wish.since))
        return [line for change in changes if (line := _line(wish, match, change))]


async def _said_within(request: web.Request, problem: ApiProblem) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    event = {"type": "ERROR", "object": problem.document()}
    await answer.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
    await answer.write_eof()
    return answer


def _match(wish: Wish) -> Callable[[Doc], bool]:
    labels, fields = label_match(wish.labels), field_match(wish.kind, wish.fields)
    if not wish.namespace:
        return lambda doc: labels(doc) and fields(doc)
    return lambda doc: doc["metadata"].get("namespace") == wish.namespace and labels(doc) and fields(doc)


def _line(wish: Wish, match: Callable[[Doc], bool], change: Change) -> bytes | None:
    """The event of a change for those who see only what matches: coming into sight is being added, leaving it is
    being deleted."""
    before = change.old is not None and match(change.old)
    after = change.type != "DELETED" and match(change.new)
    if not before and not after:
        return None
    kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
    return _event(wish, kind, change.new)


def _event(wish: Wish, type_: str, doc: Doc) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), encoded_as(wish.kind, wish.version, doc))


def _bookmark(wish: Wish, version: int, *, initial: bool = False) -> bytes:
    api_version = f"{wish.kind.group}/{wish.version}" if wish.kind.group else wish.version
    metadata: Doc = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    mark = {"kind": wish.kind.kind, "apiVersion": api_version, "metadata": metadata}
    return json.dumps({"type": "BOOKMARK", "object": mark}, separators=(",", ":")).encode() + b"\n"
