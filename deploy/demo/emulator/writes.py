"""What happens to a write, step by step: the same steps, in the same order, as in a real API server.

create   name · namespace · metadata · defaults · mutating admission · validation · validating admission · stored
update   what was read · change · resourceVersion and UID · defaults · mutating admission · validation · generation ·
         nothing changed? · validating admission · stored, or gone where the last finalizer has been taken away
delete   preconditions · validating admission · gone, or marked where finalizers or a grace period hold it
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from deploy.demo.emulator import rules
from deploy.demo.emulator.definitions import REF as DEFINITIONS
from deploy.demo.emulator.definitions import complete
from deploy.demo.emulator.frozen import freeze, thaw
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.memory import Memory
from deploy.demo.emulator.ownership import track_update
from deploy.demo.emulator.problems import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified,
    not_found,
)
from deploy.demo.emulator.requests import Change, Check, User, Write
from deploy.demo.emulator.scale import scale_of, set_replicas

Doc = dict[str, Any]
# What may be in a generated name: no vowels, so that it is no word.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def stamp(moment: datetime) -> str:
    """A moment as documents have it: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Writes:
    """Create, update, delete. ``changers`` and ``checks`` are mutating and validating admission, in order."""

    def __init__(self, memory: Memory, clock: Callable[[], datetime], seed: int | None) -> None:
        self._memory = memory
        self._clock = clock
        self._random = random.Random(seed)
        self.changers: list[Change] = []
        self.checks: list[Check] = []

    def create(
        self, kind: Kind, doc: Doc, user: User, *, manager: str, dry_run: bool = False, managed: bool = True
    ) -> Doc:
        """Store a new object; ``managed`` False leaves metadata.managedFields as they are (an apply wrote them)."""
        made: Doc = thaw(doc)
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        metadata = made["metadata"] = dict(made.get("metadata") or {})
        self._name(kind, metadata)
        self._check_namespace(kind, metadata)
        if metadata.pop("resourceVersion", ""):
            raise bad_request("resourceVersion should not be set on objects to be created")
        for key in _KEPT:
            metadata.pop(key, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = stamp(self._clock())
        if kind.spec_counts:
            metadata["generation"] = 1
        if kind.ref == "namespaces":
            made["spec"] = {"finalizers": ["kubernetes"]}
        if kind.status and not kind.created_with_status:
            made.pop("status", None)
        if kind.ref == DEFINITIONS:
            complete(made, metadata["creationTimestamp"])
        rules.set_defaults(kind, made)
        _tidy(metadata)
        where = (kind, "", metadata.get("namespace", ""), metadata["name"], user, dry_run)
        for change in self.changers:
            change(Write("CREATE", *where, made, None), made)
        if managed:
            track_update(kind, None, made, manager=manager, subresource="", time=stamp(self._clock()))
        rules.validate(kind, made, None)
        frozen = freeze(made)
        self._judge(Write("CREATE", *where, frozen, None))
        if self._memory.find(kind, metadata.get("namespace", ""), metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        return frozen if dry_run else self._memory.put(kind, frozen)

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Doc], Doc],
        user: User,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
        managed: bool = True,
    ) -> Doc:
        """Change an object: ``change`` gets a frozen document and returns a new one, of the same kind or a Scale."""
        old = self._memory.find(kind, namespace, name)
        if old is None:
            raise not_found(kind, name)
        scaled = subresource == "scale"
        before = freeze(scale_of(kind, old)) if scaled else old
        wanted = dict(change(before))
        wanted["metadata"] = dict(wanted.get("metadata") or {})
        self._check_identity(kind, before, wanted)
        new = set_replicas(kind, old, wanted) if scaled else _joined(kind, old, wanted, subresource)
        if kind.ref == DEFINITIONS:
            complete(new, stamp(self._clock()))
        rules.set_defaults(kind, new, status_only=subresource == "status")
        _tidy(new["metadata"])
        where = (kind, subresource, namespace, name, user, dry_run)
        if not subresource:
            for changer in self.changers:
                changer(Write("UPDATE", *where, new, old), new)
        if managed:
            time = stamp(self._clock())
            track_update(kind, old, new, manager=manager, subresource=subresource, time=time)
        rules.validate(kind, new, old)
        # A scheduler's binding is nobody's intention.
        if kind.spec_counts and subresource != "binding" and _intent(new) != _intent(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        frozen: Doc = freeze(new, old)
        after: Doc = freeze(scale_of(kind, frozen)) if scaled else frozen
        self._judge(Write("UPDATE", *where, after, before))
        if dry_run or frozen is old:
            return after
        if ended(kind, frozen):
            return self._memory.drop(kind, frozen)
        stored = self._memory.put(kind, frozen)
        if not scaled:
            return stored
        shown: Doc = freeze(scale_of(kind, stored))
        return shown

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        user: User,
        *,
        propagation: str = "",
        uid: str = "",
        version: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> tuple[Doc, bool]:
        """Delete an object; returns its last state and whether it is gone already."""
        old = self._memory.find(kind, namespace, name)
        if old is None:
            raise not_found(kind, name)
        self._check_preconditions(kind, old, uid, version)
        self._judge(Write("DELETE", kind, "", namespace, name, user, dry_run, None, old))
        new = thaw(old)
        metadata = new["metadata"]
        _hold_for_dependents(metadata, propagation)
        grace = _grace(kind, old, grace_s)
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = stamp(self._clock() + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.ref == "namespaces":
                new["status"] = {**new.get("status", {}), "phase": "Terminating"}
            elif kind.spec_counts:
                metadata["generation"] = metadata.get("generation", 0) + 1
        frozen = freeze(new, old)
        if ended(kind, frozen):
            return (frozen, True) if dry_run else (self._memory.drop(kind, old), True)
        if dry_run or frozen is old:
            return frozen, False
        return self._memory.put(kind, frozen), False

    def finalize(self, namespace: str, user: User) -> None:
        """Take the finalizer of a namespace's own away, which ends a marked one."""

        def change(old: Doc) -> Doc:
            new: Doc = thaw(old)
            new["spec"] = {"finalizers": []}
            return new

        self.update(NAMESPACES, "", namespace, change, user, manager="", subresource="finalize")

    def _judge(self, write: Write) -> None:
        for check in self.checks:
            check(write)

    def _name(self, kind: Kind, metadata: Doc) -> None:
        if not metadata.get("name"):
            prefix = metadata.get("generateName")
            if not prefix:
                why = "Required value: name or generateName is required"
                raise invalid(kind, "", [("metadata.name", "FieldValueRequired", why)])
            metadata["name"] = prefix[:58] + "".join(self._random.choices(_LETTERS, k=5))
        if not kind.namespaced:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            metadata["namespace"] = "default"

    def _check_namespace(self, kind: Kind, metadata: Doc) -> None:
        if not kind.namespaced:
            return
        name = metadata["namespace"]
        found = self._memory.find(NAMESPACES, "", name)
        if found is None:
            raise not_found(NAMESPACES, name)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            refused = forbidden(kind, metadata["name"], why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
            refused.details["causes"] = [cause]
            raise refused

    def _check_identity(self, kind: Kind, old: Doc, new: Doc) -> None:
        """Whether the writer means the object that is stored."""
        was, now = old["metadata"], new["metadata"]
        for key in ("name", "namespace"):
            if now.setdefault(key, was.get(key)) != was.get(key):
                raise bad_request(
                    f"the {key} of the object ({now[key]}) does not match the {key} on the URL ({was.get(key)})"
                )
        if now.get("namespace") is None:
            now.pop("namespace", None)
        if now.get("uid") and now["uid"] != was["uid"]:
            why = f"Precondition failed: UID in precondition: {now['uid']}, UID in object meta: {was['uid']}"
            raise conflict(kind, was["name"], why)
        version = now.get("resourceVersion")
        if not version and not kind.blind_put:
            why = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, was["name"], [("metadata.resourceVersion", "FieldValueInvalid", why)])
        if version and version != was["resourceVersion"]:
            raise modified(kind, was["name"])

    def _check_preconditions(self, kind: Kind, old: Doc, uid: str, version: str) -> None:
        metadata = old["metadata"]
        if uid and uid != metadata["uid"]:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind, metadata["name"], why)
        if version and version != metadata["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified"
            )
            raise conflict(kind, metadata["name"], why)


NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False, status=True)


def ended(kind: Kind, doc: Doc) -> bool:
    """Whether nothing holds an object that is marked for deletion."""
    metadata = doc["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.ref == "namespaces" and (doc.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _joined(kind: Kind, old: Doc, new: Doc, subresource: str) -> Doc:
    """The part of ``new`` that this path may write, over the rest of ``old``; system fields stay."""
    if subresource == "status":
        # The rest stays as it is, frozen: a status is written most often, and its object may be large.
        joined: Doc = {**old, "metadata": _open(old["metadata"])}
        _set(joined, "status", thaw(new.get("status")))
        if not kind.custom:  # built-in kinds take labels and annotations on this path too
            for key in ("labels", "annotations"):
                _set(joined["metadata"], key, thaw(new["metadata"].get(key)))
        _set(joined["metadata"], "managedFields", new["metadata"].get("managedFields"))
    else:
        joined = {**thaw({**new, "metadata": None}), "metadata": _open(new["metadata"])}
        if kind.status:
            _set(joined, "status", thaw(old.get("status")))
        if kind.ref == "namespaces" and subresource != "finalize":
            _set(joined, "spec", thaw(old.get("spec")))
    joined["apiVersion"], joined["kind"] = kind.api_version, kind.kind
    for key in (*_KEPT, "resourceVersion"):
        _set(joined["metadata"], key, old["metadata"].get(key))
    return joined


def _open(metadata: Doc) -> Doc:
    """A copy of metadata to be changed; managedFields are only ever replaced as a whole."""
    return {key: each if key == "managedFields" else thaw(each) for key, each in metadata.items()}


def _set(doc: Doc, key: str, value: Any) -> None:
    if value is None:
        doc.pop(key, None)
    else:
        doc[key] = value


def _tidy(metadata: Doc) -> None:
    """Empty parts of metadata are left out, whatever the kind."""
    for key in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if key in metadata and not metadata[key]:
            del metadata[key]


def _intent(doc: Doc) -> Doc:
    return {key: value for key, value in doc.items() if key not in ("metadata", "status")}


def _hold_for_dependents(metadata: Doc, propagation: str) -> None:
    """Foreground and Orphan are finalizers, which the garbage collector takes away when it has done its part."""
    held = [each for each in metadata.get("finalizers") or [] if each not in ("foregroundDeletion", "orphan")]
    added = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"]}.get(propagation, [])
    if propagation == "" and "deletionTimestamp" in metadata:
        return
    _set(metadata, "finalizers", [*held, *added] or None)


def _grace(kind: Kind, doc: Doc, asked: int | None) -> int:
    """Seconds that a pod has for its end: none before it is on a node, and none after its containers have ended."""
    if kind.ref != "pods" or not doc["spec"].get("nodeName"):
        return 0
    if (doc.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return asked if asked is not None else int(doc["spec"].get("terminationGracePeriodSeconds", 30))
