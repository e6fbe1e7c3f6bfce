"""What a step sees: the set, its LeaderWorkerSets and its hold parameter, read live in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.fleet.names import SET_NAME, SET_REVISION, SET_ROLE, labels_of, owner_uid, slice_of
from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.kube.client import FIELD_MANAGER, Kube
from controlplane.kube.errors import ObjectMissing
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    PODS,
    ROLE_SCALERS,
)
from policy.canonical import digest
from policy.rollout.box import Key

Json = dict[str, Any]

FENCE_ANNOTATION = "lockstep.dev/fence"
ROW_ANNOTATION = "lockstep.dev/row"


def parameter_name(namespace: str, name: str) -> str:
    """Name of a set's hold parameter; a namespace has no dot, so the name is unambiguous."""
    return f"hold-{namespace}.{name}"


def roles_digest(roles: Sequence[Mapping[str, Any]]) -> str:
    """Digest of the whole of `spec.roles`, replicas and pace included: tells somebody else's write from ours."""
    return digest(list(roles))


@dataclass(frozen=True, slots=True)
class ChildCount:
    """One LeaderWorkerSet of the set: groups wanted and groups ready."""

    name: str
    wanted: int
    ready: int
    observed: bool  # status belongs to the current generation
    body: Json


@dataclass(frozen=True, slots=True)
class LiveSet:
    """One consistent-enough look: set, children by (slice, revision, role), parameter (None where absent).

    `scaled` has the groups that the role scaler asks for, per role that is sized from outside (mode External); a role
    whose scaler is not there is left out."""

    body: Json
    children: Mapping[Key, ChildCount]
    parameter: Json | None
    scaled: Mapping[str, int] = field(default_factory=dict)

    @property
    def roles(self) -> list[Json]:
        """`spec.roles` as stored."""
        roles: list[Json] = self.body["spec"]["roles"]
        return roles

    @property
    def slices(self) -> list[str]:
        """Slice names, "0" where the version has no slices."""
        return [str(index) for index in range(self.body["spec"].get("slices", 1))]

    def target(self, role: Mapping[str, Any]) -> int:
        """Groups that the controller goes for in a role of `spec.roles`: its scaler's number, where it has one."""
        written = int(role["spec"].get("replicas", 1))
        return self.scaled.get(role["name"], written) if is_external(role) else written

    def counts(self) -> dict[Key, int]:
        """Groups wanted per (slice, revision, role)."""
        return {key: child.wanted for key, child in self.children.items()}

    def labels(self) -> set[str]:
        """Revision labels that have any LeaderWorkerSet."""
        return {key[1] for key in self.children}

    def live_labels(self) -> set[str]:
        """Revision labels that have groups."""
        return {key[1] for key, child in self.children.items() if child.wanted or child.ready}

    def ready(self, key: Key) -> int:
        """Ready groups of one child; 0 where it is missing."""
        child = self.children.get(key)
        return child.ready if child else 0

    def complete(self, key: Key, count: int) -> bool:
        """Whether a child wants exactly `count` groups and has them ready, by a status that is up to date."""
        child = self.children.get(key)
        return child is not None and child.wanted == child.ready == count and child.observed

    def short_of(
        self, label: str, goal: Mapping[str, int], *, slices: Sequence[str] | None = None
    ) -> list[str]:
        """What a revision lacks to be complete and ready, per slice and role, in words; `goal` has the groups per role,
        and `slices` are those that stand unless told."""
        return [
            f"{role} {self.ready((name, label, role))} of {count}"
            for name in (self.slices if slices is None else slices)
            for role, count in goal.items()
            if count and not self.complete((name, label, role), count)
        ]


def shown(counts: Mapping[Key, int]) -> Json:
    """Counts for facts and results: `slice/revision/role` to groups, in order."""
    return {"/".join(key): count for key, count in sorted(counts.items())}


def is_external(role: Mapping[str, Any]) -> bool:
    """Whether a role of `spec.roles` is sized by a role scaler."""
    return (role.get("scaling") or {}).get("mode") == "External"


def child_key(lws: Mapping[str, Any]) -> Key:
    """(slice, revision, role) of a LeaderWorkerSet from its labels; v0.9.0 has no slice label."""
    labels = labels_of(lws)
    return (slice_of(lws), labels.get(SET_REVISION, ""), labels.get(SET_ROLE, ""))


def _child(lws: Json) -> ChildCount:
    status = lws.get("status", {})
    generation = lws["metadata"].get("generation", 0)
    return ChildCount(
        name=lws["metadata"]["name"],
        wanted=int(lws["spec"].get("replicas", 1)),
        ready=int(status.get("readyReplicas", 0)),
        observed=int(status.get("observedGeneration", generation)) >= generation,
        body=lws,
    )


def read_set(kube: Kube, namespace: str, name: str) -> Json:
    """The set; raises ObjectMissing."""
    return kube.get(DISAGGREGATED_SETS, name, namespace)


def read_parameter(kube: Kube, namespace: str, name: str) -> Json | None:
    """The set's hold parameter, or None."""
    try:
        return kube.get(CONFIG_MAPS, parameter_name(namespace, name), LOCKSTEP_NAMESPACE)
    except ObjectMissing:
        return None


def read_children(kube: Kube, live: Json) -> dict[Key, ChildCount]:
    """LeaderWorkerSets that carry the set's name label and are owned by this very set (UID)."""
    metadata = live["metadata"]
    listing = kube.list(
        LEADER_WORKER_SETS, metadata["namespace"], label_selector=f"{SET_NAME}={metadata['name']}"
    )
    return {
        child_key(lws): _child(lws)
        for lws in listing.items
        if owner_uid(lws, "DisaggregatedSet") == metadata["uid"]
        and "deletionTimestamp" not in lws["metadata"]
    }


def read_pods(kube: Kube, namespace: str, name: str, revision: str) -> list[Json]:
    """Pods of one revision of a set, by their labels. Raises KubeError."""
    selector = f"{SET_NAME}={name},{SET_REVISION}={revision}"
    return list(kube.list(PODS, namespace, label_selector=selector).items)


def read_scaled(kube: Kube, live: Json) -> dict[str, int]:
    """Groups per role that the set's own role scalers ask for; asked only where a role is sized from outside."""
    if not any(map(is_external, live["spec"]["roles"])):
        return {}
    metadata = live["metadata"]
    try:
        found = kube.list(
            ROLE_SCALERS, metadata["namespace"], label_selector=f"{SET_NAME}={metadata['name']}"
        )
    except ObjectMissing:
        return {}
    return {
        labels_of(each)[SET_ROLE]: int(each["spec"].get("replicas", 0))
        for each in found.items
        if owner_uid(each, "DisaggregatedSet") == metadata["uid"] and SET_ROLE in labels_of(each)
    }


def read_live(kube: Kube, namespace: str, name: str) -> LiveSet:
    """Set, children and parameter; raises ObjectMissing where the set is gone."""
    live = read_set(kube, namespace, name)
    return LiveSet(
        body=live,
        children=read_children(kube, live),
        parameter=read_parameter(kube, namespace, name),
        scaled=read_scaled(kube, live),
    )


def last_writer(live: Mapping[str, Any]) -> str:
    """Field manager that last wrote `spec.roles`, for sentences about somebody else's write.

    The time of our own entry says nothing: every fencing renews it, and the entry covers roles and annotations alike.
    """
    entries = [
        entry
        for entry in live["metadata"].get("managedFields", [])
        if "f:roles" in entry.get("fieldsV1", {}).get("f:spec", {}) and entry.get("subresource", "") == ""
    ]
    entries.sort(key=lambda entry: (entry.get("manager") != FIELD_MANAGER, entry.get("time", "")))
    return str(entries[-1].get("manager", "unknown")) if entries else "unknown"
