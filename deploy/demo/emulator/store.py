"""The store: everything that exists, and the verbs by which it is read and written. Controllers live on it.

One thread: that of the event loop. Every call here is synchronous and done when it returns; nothing may call from
another thread (``Emulator.call`` brings a function over to the loop). Reads need no rights; a write goes through the
same steps as one over HTTP, admission policies included, **as the user who acts**, so a held set refuses its
controller here as it does there. Rights (RBAC) are asked at the HTTP door only.

How a controller uses it::

    class ReplicaSets:                                          # a parts.Part
        name = "replicaset-controller"

        async def run(self, store: Store, pace: Pace) -> None:
            self.acting = store.acting_as(service_account("kube-system", "replicaset-controller"))
            with self.acting.subscribe("replicasets.apps", "pods") as changes:
                for replica_set in self.acting.list("replicasets.apps"):
                    self.reconcile(replica_set)
                while True:
                    for change in await changes.next():    # at least one; next(limit_s) gives [] after limit_s
                        ...                                 # change.type, .kind.ref, .old, .new
                    await pace.going()                      # a paused part stops here

        def reconcile(self, replica_set):
            pods = self.acting.list("pods", namespace, labels="app=x")
            self.acting.create({"apiVersion": "v1", "kind": "Pod", "metadata": {...}, "spec": {...}})
            self.acting.patch("pods", namespace, name, {"metadata": {"labels": {"a": "b"}}})           # merge patch
            self.acting.write_status("replicasets.apps", namespace, name, {"replicas": 3})             # merged
            self.acting.delete("pods", namespace, name, uid=uid)

- Kinds are named ``pods``, ``deployments.apps``, ``leaderworkersets.leaderworkerset.x-k8s.io`` (see ``catalogue``).
- What a read gives is **frozen and shared** (changing it raises TypeError): ``frozen.thaw`` gives a plain copy,
  ``{**doc, ...}`` does for one level. ``replace`` takes a whole document with the resourceVersion that was read.
- What is refused raises ``problems.ApiProblem`` with ``.status``, ``.reason`` ("NotFound", "Conflict", ...),
  ``.message`` and ``.details``; ``find`` gives None for what is not there.
- Writing what is there already stores nothing and tells nobody, so a reconcile may write without looking first.
- ``delete`` of a pod that is on a node only marks it (deletionTimestamp, deletionGracePeriodSeconds): whoever plays
  the kubelet ends it by ``delete(..., grace_s=0)``. Finalizers hold any object; "Foreground" and "Orphan" are the
  finalizers ``foregroundDeletion`` and ``orphan``.
- Dependents of a deleted owner, those finalizers, the contents of a deleted namespace and each namespace's default
  service account are seen to by ``garbage`` and ``namespaces``, which run in every emulator: controllers need not.
- ``dependents(uid)`` gives everything with that owner without a search.
- A controller is a ``parts.Part``: the emulator runs, pauses, stops and restarts it (``Emulator(parts=[...])``), and
  starts it again when it raises. It remembers nothing from an earlier run: it begins by listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from deploy.demo.emulator import patches
from deploy.demo.emulator.catalogue import CATALOGUE, definitions
from deploy.demo.emulator.definitions import REF as DEFINITIONS
from deploy.demo.emulator.definitions import kind_of
from deploy.demo.emulator.kinds import Kind, Kinds
from deploy.demo.emulator.memory import HISTORY, Change, Memory, Subscription
from deploy.demo.emulator.problems import ApiProblem, not_found
from deploy.demo.emulator.requests import User, service_account
from deploy.demo.emulator.selectors import field_match, label_match
from deploy.demo.emulator.writes import Writes

Doc = dict[str, Any]

__all__ = ["Acting", "ApiProblem", "Doc", "Kind", "Store", "Subscription", "User", "service_account"]


class Store:
    """Objects, kinds and verbs of one emulated cluster.

    ``newer_sets`` for the kinds of newer LeaderWorkerSet managers · ``clock`` gives the moment for timestamps ·
    ``seed`` makes UIDs and generated names repeatable · ``history`` how many changes of each kind a watch may go back.
    """

    def __init__(
        self,
        *,
        newer_sets: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        seed: int | None = None,
        history: int = HISTORY,
    ) -> None:
        self.clock = clock
        self.definitions = definitions(newer_sets=newer_sets)
        self.kinds = Kinds([*CATALOGUE, *map(kind_of, self.definitions)])
        self.memory = Memory(history)
        self.writes = Writes(self.memory, clock, seed)
        self.memory.listen(DEFINITIONS, self._on_definition)

    def acting_as(self, user: User, *, manager: str = "") -> Acting:
        """The verbs as one user; ``manager`` is the field manager of the writes."""
        return Acting(self, user, manager or user.name.rpartition(":")[2])

    def _on_definition(self, change: Change) -> None:
        """A definition serves its kind as soon as it is there, and takes the objects with it when it goes."""
        kind = kind_of(change.new)
        if change.type != "DELETED":
            self.kinds.add(kind)
            return
        for doc in self.memory.all(kind):
            self.memory.drop(kind, doc)
        self.kinds.remove(kind.ref)

    @property
    def version(self) -> int:
        """The version of the last change of anything."""
        return self.memory.version

    def get(self, kind: str | Kind, namespace: str, name: str) -> Doc:
        """One object. Raises ApiProblem 404."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(self.kinds.of(kind), name)
        return found

    def find(self, kind: str | Kind, namespace: str, name: str) -> Doc | None:
        """One object, or None where there is none (or no such kind)."""
        if isinstance(kind, str) and kind not in self.kinds:
            return None
        return self.memory.find(self.kinds.of(kind), namespace, name)

    def list(self, kind: str | Kind, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Doc]:
        """Objects of one namespace ("": of all) by label and field selector, sorted by namespace and name."""
        what = self.kinds.of(kind)
        found = self.memory.all(what, namespace)
        if labels:
            found = list(filter(label_match(labels), found))
        if fields:
            found = list(filter(field_match(what, fields), found))
        return found

    def dependents(self, uid: str) -> Sequence[tuple[str, Doc]]:
        """Everything with an ownerReference to a UID, each with the name of its kind."""
        return self.memory.dependents(uid)

    @contextmanager
    def subscribe(self, *kinds: str | Kind) -> Iterator[Subscription]:
        """Changes from now on, of the named kinds or of all."""
        made = self.memory.subscribe(self.kinds.of(each).ref for each in kinds)
        try:
            yield made
        finally:
            made.close()


class Acting:
    """The store as one user sees and changes it. Writes return the object as it is stored, or would be with
    ``dry_run``."""

    def __init__(self, store: Store, user: User, manager: str) -> None:
        self.store = store
        self.user = user
        self.manager = manager
        self.get = store.get
        self.find = store.find
        self.list = store.list
        self.dependents = store.dependents
        self.subscribe = store.subscribe

    def create(self, doc: Doc, *, dry_run: bool = False) -> Doc:
        """Store a new object. Raises ApiProblem 409 AlreadyExists, 422, 403 by admission, 404 for its namespace."""
        kind = self.store.kinds.of_document(doc)
        return self.store.writes.create(kind, doc, self.user, manager=self.manager, dry_run=dry_run)

    def replace(self, doc: Doc, *, subresource: str = "", dry_run: bool = False) -> Doc:
        """Put a whole document in the place of the stored one; with a resourceVersion in it, 409 when somebody was
        faster. ``subresource`` "status" takes its status only."""
        metadata = doc["metadata"]
        kind = self.store.kinds.of_document(doc)
        where = (metadata.get("namespace", ""), metadata["name"])
        return self._update(kind, *where, lambda _: doc, subresource, dry_run)

    def patch(
        self,
        kind: str | Kind,
        namespace: str,
        name: str,
        body: Any,
        *,
        how: str = patches.MERGE,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Doc:
        """Change an object by a merge patch, or by another of ``patches``. A resourceVersion in the body is a
        condition (409)."""
        function = {
            patches.MERGE: patches.merge_patch,
            patches.STRATEGIC: patches.strategic_patch,
            patches.JSON_PATCH: patches.json_patch,
        }[how]
        what = self.store.kinds.of(kind)
        return self._update(what, namespace, name, lambda old: function(old, body), subresource, dry_run)

    def write_status(self, kind: str | Kind, namespace: str, name: str, status: Doc) -> Doc:
        """Merge into an object's status; lists in it are replaced whole."""
        return self.patch(kind, namespace, name, {"status": status}, subresource="status")

    def scale(self, kind: str | Kind, namespace: str, name: str, replicas: int) -> Doc:
        """Write the number of an object through its /scale."""
        return self.patch(kind, namespace, name, {"spec": {"replicas": replicas}}, subresource="scale")

    def delete(
        self,
        kind: str | Kind,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        version: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> Doc:
        """Delete an object; see above for what holds it. ``uid`` and ``version`` are conditions (409)."""
        last, _ = self.store.writes.delete(
            self.store.kinds.of(kind),
            namespace,
            name,
            self.user,
            propagation=propagation,
            uid=uid,
            version=version,
            grace_s=grace_s,
            dry_run=dry_run,
        )
        return last

    def _update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Doc], Doc],
        subresource: str,
        dry_run: bool,
    ) -> Doc:
        return self.store.writes.update(
            kind,
            namespace,
            name,
            change,
            self.user,
            manager=self.manager,
            subresource=subresource,
            dry_run=dry_run,
        )
