"""Lists: selectors, pages that are consistent with each other, and the bytes of the answer."""

from __future__ import annotations

import base64
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.demo.emulator.frozen import encoded
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import ApiProblem, bad_request
from deploy.demo.emulator.selectors import field_match, label_match
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
# A real server can go back about five minutes, which is how long etcd keeps old versions.
KEPT_S = 300.0
_KEPT = 64


@dataclass
class _Snapshot:
    items: list[Doc]
    version: int
    taken: float


class Lists:
    """Lists of one store. Pages of one list come from one snapshot: it costs only the references."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()
        self._number = 0

    def answer(
        self,
        kind: Kind,
        version: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
    ) -> bytes:
        """The body of a list in an API version. Raises ApiProblem 410 for a page token that is too old, 400 for one
        that is none."""
        if token:
            key, start = _read_token(token)
            snapshot = self._snapshots.get(key)
            if snapshot is None or self._clock() - snapshot.taken > KEPT_S:
                raise _too_old()
        else:
            snapshot = _Snapshot(
                self._chosen(kind, namespace, labels, fields), self._store.version, self._clock()
            )
            key, start = "", 0
        end = start + limit if limit else len(snapshot.items)
        metadata: Doc = {"resourceVersion": str(snapshot.version)}
        if end < len(snapshot.items):
            metadata["continue"] = _token(key or self._keep(snapshot), end, snapshot.version)
            if not labels and not fields:
                metadata["remainingItemCount"] = len(snapshot.items) - end
        return body(kind, version, snapshot.items[start:end], metadata)

    def expire(self) -> None:
        """Make every page token given so far too old."""
        self._snapshots.clear()

    def _chosen(self, kind: Kind, namespace: str, labels: str, fields: str) -> list[Doc]:
        found = self._store.memory.all(kind, namespace)
        if labels:
            found = list(filter(label_match(labels), found))
        if fields:
            found = list(filter(field_match(kind, fields), found))
        return found

    def _keep(self, snapshot: _Snapshot) -> str:
        self._number += 1
        key = str(self._number)
        self._snapshots[key] = snapshot
        while len(self._snapshots) > _KEPT:
            self._snapshots.popitem(last=False)
        return key


def _too_old() -> ApiProblem:
    return ApiProblem(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter.",
    )


def _token(key: str, start: int, version: int) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start, "snapshot": key})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[str, int]:
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return str(found["snapshot"]), int(found["start"])
    except (ValueError, KeyError, TypeError) as problem:
        raise bad_request(f"continue key is not valid: {problem}") from problem


def body(kind: Kind, version: str, items: list[Doc], metadata: Doc) -> bytes:
    """A list as bytes. Items of built-in kinds come without apiVersion and kind, as from the real server."""
    api_version = f"{kind.group}/{version}" if kind.group else version
    head = {"kind": f"{kind.kind}List", "apiVersion": api_version, "metadata": metadata}
    start = json.dumps(head, separators=(",", ":"))[:-1].encode()
    return start + b',"items":[' + b",".join(_item(kind, version, item) for item in items) + b"]}"


def _item(kind: Kind, version: str, item: Doc) -> bytes:
    if kind.custom:
        return encoded_as(kind, version, item)
    return b"{" + encoded(item)[len(_head(kind, kind.api_version)) :]


def _head(kind: Kind, api_version: str) -> bytes:
    return f'{{"apiVersion":"{api_version}","kind":"{kind.kind}",'.encode()


def encoded_as(kind: Kind, version: str, item: Doc) -> bytes:
    """One object as bytes, in a version other than the stored one too: nothing but the name of it changes."""
    if version == kind.version:
        return encoded(item)
    api_version = f"{kind.group}/{version}" if kind.group else version
    return _head(kind, api_version) + encoded(item)[len(_head(kind, kind.api_version)) :]
