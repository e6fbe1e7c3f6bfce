"""The garbage collector: what has lost its last owner goes; Foreground and Orphan deletions are carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.memory import Change
from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.store import Acting, Store, service_account

Doc = dict[str, Any]
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Collector:
    """A part: looks at every object that has been deleted, marked, or made with owners."""

    name = "garbage-collector"

    async def run(self, store: Store, pace: Pace) -> None:
        """Work until cancelled."""
        acting = store.acting_as(service_account("kube-system", "generic-garbage-collector"))
        with store.subscribe() as changes:
            for kind in store.kinds:
                for doc in store.list(kind):
                    _look(acting, kind, doc)
            while True:
                for change in await changes.next():
                    await pace.going()
                    _take(acting, change)


def _take(acting: Acting, change: Change) -> None:
    if change.type != "DELETED":
        _look(acting, change.kind, change.new)
        return
    for ref, dependent in acting.dependents(change.new["metadata"]["uid"]):
        _look(acting, acting.store.kinds.of(ref), dependent)
    # An owner that waits for its dependents may have waited for this one.
    for reference in change.new["metadata"].get("ownerReferences") or ():
        owner = _owner(acting.store, change.new, reference)
        if owner is not None:
            _look(acting, *owner)


def _look(acting: Acting, kind: Kind, seen: Doc) -> None:
    metadata = seen["metadata"]
    where = (metadata.get("namespace", ""), metadata["name"])
    doc = acting.find(kind, *where)
    if doc is None or doc["metadata"]["uid"] != metadata["uid"]:
        return
    if "deletionTimestamp" in doc["metadata"]:
        _finish(acting, kind, doc)
        return
    references = doc["metadata"].get("ownerReferences") or ()
    if not references:
        return
    owners = [_owner(acting.store, doc, each) for each in references]
    if all(owner is None or _waits(owner[1]) for owner in owners):
        foreground = any(owner is not None for owner in owners)
        _try(
            lambda: acting.delete(
                kind, *where, uid=metadata["uid"], propagation="Foreground" if foreground else "Background"
            )
        )


def _owner(store: Store, doc: Doc, reference: Doc) -> tuple[Kind, Doc] | None:
    try:
        kind = store.kinds.named(reference["apiVersion"], reference["kind"])
    except ApiProblem:
        return None
    space = doc["metadata"].get("namespace", "") if kind.namespaced else ""
    found = store.find(kind, space, reference["name"])
    if found is None or found["metadata"]["uid"] != reference["uid"]:
        return None
    return kind, found


def _waits(owner: Doc) -> bool:
    """Whether an owner goes only after its dependents."""
    return FOREGROUND in (owner["metadata"].get("finalizers") or ())


def _finish(acting: Acting, kind: Kind, doc: Doc) -> None:
    """Do for a marked object what its finalizers ask of the collector."""
    finalizers = doc["metadata"].get("finalizers") or ()
    uid = doc["metadata"]["uid"]
    if ORPHAN in finalizers:
        for ref, dependent in acting.dependents(uid):
            left = [each for each in dependent["metadata"]["ownerReferences"] if each["uid"] != uid]
            body = {"metadata": {"uid": dependent["metadata"]["uid"], "ownerReferences": left or None}}
            _patch(acting, ref, dependent, body)
        _drop(acting, kind, doc, ORPHAN)
    elif FOREGROUND in finalizers:
        dependents = acting.dependents(uid)
        for ref, dependent in dependents:
            if "deletionTimestamp" not in dependent["metadata"]:
                _look(acting, acting.store.kinds.of(ref), dependent)
        waited = [
            each
            for _, dependent in acting.dependents(uid)
            for each in dependent["metadata"]["ownerReferences"]
            if each["uid"] == uid and each.get("blockOwnerDeletion")
        ]
        if not waited:
            _drop(acting, kind, doc, FOREGROUND)


def _drop(acting: Acting, kind: Kind, doc: Doc, finalizer: str) -> None:
    metadata = doc["metadata"]
    left = [each for each in metadata["finalizers"] if each != finalizer]
    _patch(acting, kind, doc, {"metadata": {"uid": metadata["uid"], "finalizers": left or None}})


def _patch(acting: Acting, kind: str | Kind, doc: Doc, body: Doc) -> None:
    metadata = doc["metadata"]
    _try(lambda: acting.patch(kind, metadata.get("namespace", ""), metadata["name"], body))


def _try(call: Callable[[], object]) -> None:
    """A refusal (somebody was faster, an admission policy) is looked at again with the next change."""
    try:
        call()
    except ApiProblem:
        return
