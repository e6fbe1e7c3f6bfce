"""What a program has seen of the cluster: the store as it is, or as it was some seconds ago.

A real controller reads from a cache that a watch fills. Where the watch lags, it acts on what was, while its writes
meet what is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.memory import Change, owners
from deploy.demo.emulator.selectors import label_match
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]


class View:
    """Reads of one program; ``kinds`` are those that it watches, all others are read as they are."""

    def __init__(self, store: Store, kinds: Iterable[str]) -> None:
        self._store = store
        self._kinds = tuple(kinds)
        self._waiting: deque[tuple[float, Change]] = deque()
        self._cache: dict[str, dict[tuple[str, str], Doc]] | None = None

    def lag(self, seconds: float) -> None:
        """Be that late from now on; 0 sees what is, at once."""
        if seconds <= 0:
            self._cache = None
        elif self._cache is None:
            self._cache = {kind: self._copy(kind) for kind in self._kinds}

    def take(self, changes: Iterable[Change], now: float, lag_s: float) -> list[Change]:
        """Hear of changes; those that are seen by now, in order."""
        self._waiting.extend((now + lag_s, change) for change in changes)
        seen = []
        while self._waiting and (lag_s <= 0 or self._waiting[0][0] <= now):
            seen.append(self._waiting.popleft()[1])
        if self._cache is not None:
            for change in seen:
                self._put(self._cache, change)
        return seen

    @property
    def next_at(self) -> float | None:
        """When the next change is seen."""
        return self._waiting[0][0] if self._waiting else None

    def find(self, kind: str, namespace: str, name: str) -> Doc | None:
        """One object, or None."""
        if self._cache is None or kind not in self._cache:
            return self._store.find(kind, namespace, name)
        return self._cache[kind].get((namespace, name))

    def dependents(self, uid: str, kind: str) -> list[Doc]:
        """Objects of a kind with an ownerReference to a UID, sorted by name."""
        if self._cache is None or kind not in self._cache:
            found = [doc for ref, doc in self._store.dependents(uid) if ref == kind]
        else:
            found = [doc for doc in self._cache[kind].values() if uid in owners(doc)]
        return sorted(found, key=lambda doc: str(doc["metadata"]["name"]))

    def list(self, kind: str, namespace: str = "", *, labels: str = "") -> list[Doc]:
        """Objects of one namespace ("": of all) by label selector, sorted by namespace and name."""
        if self._cache is None or kind not in self._cache:
            return self._store.list(kind, namespace, labels=labels)
        held = self._cache[kind]
        found = [held[key] for key in sorted(held) if namespace in ("", key[0])]
        return list(filter(label_match(labels), found)) if labels else found

    def _copy(self, kind: str) -> dict[tuple[str, str], Doc]:
        if kind not in self._store.kinds:
            return {}
        docs = self._store.list(kind)
        return {(doc["metadata"].get("namespace", ""), doc["metadata"]["name"]): doc for doc in docs}

    @staticmethod
    def _put(cache: dict[str, dict[tuple[str, str], Doc]], change: Change) -> None:
        metadata = change.new["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if change.type == "DELETED":
            cache[change.kind.ref].pop(key, None)
        else:
            cache[change.kind.ref][key] = change.new
