"""How a controller reads and writes: reads from what its program has seen, writes as its own user.

A write first passes the program's gate: a paused program stops there, a slow one waits there, a crash happens there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from deploy.demo.emulator.controllers.view import View
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.store import Acting
from deploy.demo.emulator.writes import stamp

Doc = dict[str, Any]
# Told before a write: what (create, patch, ...), the kind, the namespace and the name.
Gate = Callable[[str, str, str, str], Awaitable[None]]


class Hands:
    """One controller's view of the cluster and its writes; see store.Acting for what the writes do and raise."""

    def __init__(self, acting: Acting, view: View, gate: Gate) -> None:
        self._acting = acting
        self._view = view
        self._gate = gate
        self._others: dict[str, Hands] = {}
        self.find = view.find
        self.list = view.list
        self.dependents = view.dependents

    def by(self, user: User, manager: str) -> Hands:
        """The same as another user, whose writes have another manager."""
        if user.name not in self._others:
            acting = self._acting.store.acting_as(user, manager=manager)
            self._others[user.name] = Hands(acting, self._view, self._gate)
        return self._others[user.name]

    @property
    def now(self) -> str:
        """The moment as documents have it."""
        return stamp(self._acting.store.clock())

    async def create(self, doc: Doc) -> Doc:
        """Store a new object."""
        metadata = doc["metadata"]
        kind = self._acting.store.kinds.of_document(doc).ref
        name = metadata.get("name") or metadata.get("generateName", "")
        await self._gate("create", kind, metadata.get("namespace", ""), name)
        return self._acting.create(doc)

    async def patch(self, kind: str, namespace: str, name: str, body: Doc) -> Doc:
        """A merge patch."""
        await self._gate("patch", kind, namespace, name)
        return self._acting.patch(kind, namespace, name, body)

    async def write_status(self, kind: str, namespace: str, name: str, status: Doc) -> Doc:
        """Merge into the status; what is there already is not written."""
        known = self._acting.find(kind, namespace, name)
        if known is not None and _says(known.get("status") or {}, status):
            return known
        await self._gate("status", kind, namespace, name)
        return self._acting.write_status(kind, namespace, name, status)

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Delete, if it is still there and (where ``uid`` is given) still the same."""
        await self._gate("delete", kind, namespace, name)
        try:
            self._acting.delete(kind, namespace, name, propagation=propagation, uid=uid, grace_s=grace_s)
        except ApiProblem as problem:
            if problem.reason not in ("NotFound", "Conflict"):
                raise

    async def bind(self, pod: Doc, node: str, labels: dict[str, str]) -> None:
        """Put a pod on a node, as a scheduler does; ``labels`` come to the pod with it."""
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        await self._gate("bind", "pods", namespace, name)
        store, manager = self._acting.store, self._acting.manager

        def change(old: Doc) -> Doc:
            kept = {**old["metadata"], "labels": {**(old["metadata"].get("labels") or {}), **labels}}
            return {**old, "metadata": kept, "spec": {**old["spec"], "nodeName": node}}

        pods = store.kinds.of("pods")
        user = self._acting.user
        store.writes.update(pods, namespace, name, change, user, manager=manager, subresource="binding")

    async def event(self, about: Doc, reason: str, message: str, *, warning: bool = False) -> None:
        """Tell people: an Event; said again it is counted. A refused one is nobody's trouble."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        said = f"{metadata['uid']}/{reason}/{message}"
        name = f"{metadata['name'][:200]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
        now = self.now
        known = self._acting.find("events", namespace, name)
        try:
            if known is not None:
                body = {"count": known.get("count", 1) + 1, "lastTimestamp": now}
                await self.patch("events", namespace, name, body)
                return
            await self.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": {
                        "apiVersion": about["apiVersion"],
                        "kind": about["kind"],
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
                    },
                    "type": "Warning" if warning else "Normal",
                    "reason": reason,
                    "message": message,
                    "count": 1,
                    "firstTimestamp": now,
                    "lastTimestamp": now,
                    "source": {"component": self._acting.manager},
                    "reportingComponent": self._acting.manager,
                    "reportingInstance": "",
                }
            )
        except ApiProblem:
            pass


def _says(known: Any, wanted: Any) -> bool:
    """Whether a merge of ``wanted`` into ``known`` would change nothing."""
    if isinstance(wanted, dict):
        return isinstance(known, dict) and all(_says(known.get(key), each) for key, each in wanted.items())
    return bool(known == wanted)
