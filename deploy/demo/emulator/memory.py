"""The objects themselves, one counter of versions, the recent history of each kind, and who is told of changes.

Nothing here knows a rule. Every change has a version of its own; the version of the last one is the version of all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from deploy.demo.emulator.frozen import FrozenDict, freeze
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import expired

Doc = dict[str, Any]
Key = tuple[str, str]
HISTORY = 5_000


@dataclass(frozen=True, slots=True)
class Change:
    """One object became another: ``old`` is None for a new one. ``new`` is the state after it; for a deletion the
    last state, with the version of the deletion."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind
    old: Doc | None
    new: Doc
    version: int


class Subscription:
    """Changes from a moment on, in order. ``await next()`` waits for some; ``drain()`` takes what there is."""

    def __init__(self, close: Callable[[Subscription], None]) -> None:
        self._changes: deque[Change] = deque()
        self._bell = asyncio.Event()
        self._close = close

    def put(self, change: Change) -> None:
        """Told by the memory."""
        self._changes.append(change)
        self._bell.set()

    def drain(self) -> list[Change]:
        """All changes that have not been taken yet, perhaps none."""
        found = list(self._changes)
        self._changes.clear()
        self._bell.clear()
        return found

    async def next(self, limit_s: float | None = None) -> list[Change]:
        """At least one change; an empty list when ``limit_s`` passes without one."""
        try:
            await asyncio.wait_for(self._bell.wait(), limit_s)
        except TimeoutError:
            return []
        return self.drain()

    def wake(self) -> None:
        """Let ``next`` return although nothing has changed."""
        self._bell.set()

    def close(self) -> None:
        """Be told no longer."""
        self._close(self)


class Memory:
    """Stored documents by kind, namespace and name; all of them frozen."""

    def __init__(self, history: int = HISTORY) -> None:
        self.version = 1
        self._history_limit = history
        self._objects: dict[str, dict[str, dict[str, Doc]]] = {}
        self._history: dict[str, deque[Change]] = {}
        self._forgotten: dict[str, int] = {}
        self._subscribers: dict[str, list[Subscription]] = {}
        self._listeners: dict[str, list[Callable[[Change], None]]] = {}
        self._dependents: dict[str, dict[tuple[str, str, str], None]] = {}

    # --- reads

    def find(self, kind: Kind, namespace: str, name: str) -> Doc | None:
        """One object or None."""
        return self._objects.get(kind.ref, {}).get(namespace, {}).get(name)

    def all(self, kind: Kind, namespace: str = "") -> list[Doc]:
        """All objects of a kind, of one namespace or of all, sorted by namespace and name."""
        spaces = self._objects.get(kind.ref, {})
        chosen = [namespace] if namespace else sorted(spaces)
        return [held[name] for space in chosen for held in (spaces.get(space, {}),) for name in sorted(held)]

    def dependents(self, uid: str) -> list[tuple[str, Doc]]:
        """Objects with an ownerReference to a UID, each with the name of its kind."""
        found = []
        for ref, namespace, name in self._dependents.get(uid, {}):
            doc = self._objects.get(ref, {}).get(namespace, {}).get(name)
            if doc is not None:
                found.append((ref, doc))
        return found

    def since(self, kind: Kind, version: int) -> list[Change]:
        """What changed after a version. Raises ApiProblem 410 where that is no longer known."""
        forgotten = self._forgotten.get(kind.ref, 0)
        if version < forgotten:
            raise expired(f"too old resource version: {version} ({forgotten})")
        return [change for change in self._history.get(kind.ref, ()) if change.version > version]

    # --- changes

    def put(self, kind: Kind, doc: Doc) -> Doc:
        """Store a document under the next version; returns it as stored."""
        metadata = doc["metadata"]
        old = self.find(kind, metadata.get("namespace", ""), metadata["name"])
        stored = self._stamped(doc)
        self._index(kind, old, stored)
        self._objects.setdefault(kind.ref, {}).setdefault(metadata.get("namespace", ""), {})[
            metadata["name"]
        ] = stored
        self._tell(Change("MODIFIED" if old else "ADDED", kind, old, stored, self.version))
        return stored

    def drop(self, kind: Kind, doc: Doc) -> Doc:
        """Take a document away; returns its last state with the version of the deletion."""
        metadata = doc["metadata"]
        old = self._objects[kind.ref][metadata.get("namespace", "")].pop(metadata["name"])
        last = self._stamped(doc)
        self._index(kind, old, None)
        self._tell(Change("DELETED", kind, old, last, self.version))
        return last

    def forget(self, kind: Kind | None = None) -> None:
        """Lose the history, of one kind or of all: watches from before now get 410."""
        for ref in [kind.ref] if kind else list({*self._objects, *self._history}):
            self._history.pop(ref, None)
            self._forgotten[ref] = self.version

    def _stamped(self, doc: Doc) -> Doc:
        self.version += 1
        metadata = {**doc["metadata"], "resourceVersion": str(self.version)}
        return FrozenDict({key: freeze(each) for key, each in {**doc, "metadata": metadata}.items()})

    def _index(self, kind: Kind, old: Doc | None, new: Doc | None) -> None:
        metadata = (new or old or {})["metadata"]
        key = (kind.ref, metadata.get("namespace", ""), metadata["name"])
        for uid in owners(old):
            self._dependents.get(uid, {}).pop(key, None)
        for uid in owners(new):
            self._dependents.setdefault(uid, {})[key] = None

    def _tell(self, change: Change) -> None:
        history = self._history.setdefault(change.kind.ref, deque())
        history.append(change)
        while len(history) > self._history_limit:
            self._forgotten[change.kind.ref] = history.popleft().version
        for listener in self._listeners.get(change.kind.ref, ()):
            listener(change)
        for topic in (change.kind.ref, ""):
            for subscriber in self._subscribers.get(topic, ()):
                subscriber.put(change)

    # --- who is told

    def listen(self, ref: str, listener: Callable[[Change], None]) -> None:
        """Call for every change of a kind from now on, within the write itself; for what must never be behind."""
        self._listeners.setdefault(ref, []).append(listener)

    def subscribe(self, refs: Iterable[str] = ()) -> Subscription:
        """Changes from now on, of the named kinds or of all."""
        topics = list(refs) or [""]

        def close(subscription: Subscription) -> None:
            for topic in topics:
                held = self._subscribers.get(topic, [])
                if subscription in held:
                    held.remove(subscription)

        made = Subscription(close)
        for topic in topics:
            self._subscribers.setdefault(topic, []).append(made)
        return made


def owners(doc: Doc | None) -> Iterator[str]:
    """UIDs of an object's owners."""
    for reference in ((doc or {}).get("metadata") or {}).get("ownerReferences") or ():
        yield reference["uid"]
