"""One cluster in memory: objects indexed by the set that they belong to, and which sets have changed.

Filled by reflectors on their threads, read by one writer. Sets are keyed by (namespace, name), as the
labels of their children are; who truly owns a child is decided by UID when the view is derived.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from controlplane.fleet.names import SET_NAME, labels_of
from controlplane.fleet.nodes import derive_node
from controlplane.kube.reflector import Change
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS, LEADER_WORKER_SETS, NODES, PODS

Json = dict[str, Any]
SetKey = tuple[str, str]  # namespace, name
ObjectKey = tuple[str, str]

# A burst of changes is taken as one; a set is looked at twice a second at most.
SETTLE_S = 0.05
BETWEEN_LOOKS_S = 0.5


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything known of one set. `ds` is None when there is no such set (any more)."""

    ds: Json | None
    children: list[Json]
    pods: list[Json]
    parameters: list[Json]
    troubles: dict[str, str]  # node → why it takes no pods, for nodes that carry the set's pods


@dataclass(slots=True)
class _Dirty:
    since: float
    first: float  # when the oldest change that is not recorded yet came in


@dataclass(slots=True)
class Picture:
    """See the module. All methods are thread-safe; times are `time.monotonic()`."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sets: dict[SetKey, Json] = field(default_factory=dict)
    _children: dict[SetKey, dict[ObjectKey, Json]] = field(default_factory=dict)
    _pods: dict[SetKey, dict[ObjectKey, Json]] = field(default_factory=dict)
    _parameters: dict[SetKey, dict[ObjectKey, Json]] = field(default_factory=dict)
    _troubles: dict[str, str] = field(default_factory=dict)
    _dirty: dict[SetKey, _Dirty] = field(default_factory=dict)
    _looked: dict[SetKey, float] = field(default_factory=dict)

    def take(self, change: Change, *, now: float) -> None:
        """Enter one change of a set, child, pod, node or parameter."""
        with self._lock:
            if change.resource == NODES:
                self._take_node(change, now)
            elif change.resource == DISAGGREGATED_SETS:
                if change.new is None:
                    self._sets.pop(change.key, None)
                else:
                    self._sets[change.key] = change.new
                self._touch(change.key, now)
            else:
                self._take_member(change, now)

    def mark(self, key: SetKey, *, now: float, after: float = 0) -> None:
        """Have a set looked at again, `after` seconds from now at the earliest."""
        with self._lock:
            if key in self._sets or key in self._children:
                self._dirty.setdefault(key, _Dirty(now + after, now + after))

    def mark_all(self, *, now: float) -> None:
        """Have every set looked at."""
        with self._lock:
            for key in self._sets:
                self._touch(key, now)

    def due(self, *, now: float, limit: int) -> list[tuple[SetKey, float]]:
        """Sets to look at now, those that have waited longest first, each with the time of its oldest
        change. They count as looked at from here on."""
        with self._lock:
            ready = [
                (dirty.first, key)
                for key, dirty in self._dirty.items()
                if now - dirty.since >= SETTLE_S and now - self._looked.get(key, -1e9) >= BETWEEN_LOOKS_S
            ]
            ready.sort()
            taken = [(key, first) for first, key in ready[:limit]]
            for key, _ in taken:
                del self._dirty[key]
                self._looked[key] = now
                if key not in self._sets:
                    self._looked.pop(key, None)
            return taken

    def facts(self, key: SetKey) -> Facts:
        """What is known of a set now."""
        with self._lock:
            pods = list(self._pods.get(key, {}).values())
            nodes = {pod["spec"].get("nodeName", "") for pod in pods}
            return Facts(
                ds=self._sets.get(key),
                children=list(self._children.get(key, {}).values()),
                pods=pods,
                parameters=list(self._parameters.get(key, {}).values()),
                troubles={name: self._troubles[name] for name in sorted(nodes & self._troubles.keys())},
            )

    def uids(self) -> set[str]:
        """UIDs of all sets."""
        with self._lock:
            return {str(ds["metadata"]["uid"]) for ds in self._sets.values()}

    def _take_member(self, change: Change, now: float) -> None:
        index, key_of = {
            LEADER_WORKER_SETS: (self._children, _set_of),
            PODS: (self._pods, _set_of),
            CONFIG_MAPS: (self._parameters, _held_set),
        }[change.resource]
        before = key_of(change.old) if change.old else None
        after = key_of(change.new) if change.new else None
        if before and before != after:
            members = index.get(before, {})
            members.pop(change.key, None)
            if not members:
                index.pop(before, None)
            self._touch(before, now)
        if after and change.new is not None:
            index.setdefault(after, {})[change.key] = change.new
            self._touch(after, now)

    def _take_node(self, change: Change, now: float) -> None:
        name = change.key[1]
        trouble = derive_node(change.new).trouble if change.new else "gone"
        if trouble == self._troubles.get(name, ""):
            return
        if trouble:
            self._troubles[name] = trouble
        else:
            del self._troubles[name]
        for key, pods in self._pods.items():
            if any(pod["spec"].get("nodeName") == name for pod in pods.values()):
                self._touch(key, now)

    def _touch(self, key: SetKey, now: float) -> None:
        dirty = self._dirty.get(key)
        if dirty is None:
            self._dirty[key] = _Dirty(now, now)
        else:
            # A look that was put off is wanted now.
            dirty.since = min(dirty.since, now)
            dirty.first = min(dirty.first, now)


def _set_of(item: Json) -> SetKey | None:
    name = labels_of(item).get(SET_NAME)
    return (item["metadata"].get("namespace", ""), name) if name else None


def _held_set(parameter: Json) -> SetKey | None:
    data = parameter.get("data") or {}
    return (data["namespace"], data["set"]) if data.get("namespace") and data.get("set") else None
