"""The LeaderWorkerSets of a DisaggregatedSet as its controller sees them: by slice, revision and role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    GROUP_SETS,
    INITIAL_REPLICAS,
    ONLY_SLICE,
    SET_NAME,
    SET_REVISION,
    SET_ROLE,
    SET_SLICE,
    annotations_of,
    child_labels,
    child_name,
    labels_of,
    owner_reference,
    where,
)
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.problems import ApiProblem

Doc = dict[str, Any]


@dataclass(frozen=True)
class Child:
    """One LeaderWorkerSet of a set; ``initial`` is what it had when the rollout began, its count where nothing says."""

    doc: Doc
    name: str
    slice: str
    sliced: bool
    revision: str
    role: str
    replicas: int
    ready: int
    initial: int

    @property
    def created(self) -> str:
        """When, as text that sorts by time."""
        return str(self.doc["metadata"].get("creationTimestamp", ""))


# One generation of a slice: its children by role.
Generation = dict[str, Child]


def read_child(doc: Doc) -> Child:
    """A child from its object."""
    labels = labels_of(doc)
    replicas = doc["spec"].get("replicas", 1)
    initial = annotations_of(doc).get(INITIAL_REPLICAS, "")
    return Child(
        doc=doc,
        name=doc["metadata"]["name"],
        slice=labels.get(SET_SLICE, ONLY_SLICE),
        sliced=SET_SLICE in labels,
        revision=labels.get(SET_REVISION, ""),
        role=labels.get(SET_ROLE, ""),
        replicas=replicas,
        ready=(doc.get("status") or {}).get("readyReplicas", 0),
        initial=int(initial) if initial.isdigit() else replicas,
    )


def children_of(hands: Hands, owner: Doc) -> list[Child]:
    """All children of a set, by its name alone: the manager does not ask who owns them."""
    namespace, name = where(owner)
    return [read_child(doc) for doc in hands.list(GROUP_SETS, namespace, labels=f"{SET_NAME}={name}")]


def generations(children: Iterable[Child]) -> dict[str, Generation]:
    """The children of one slice by revision and role."""
    found: dict[str, Generation] = {}
    for child in children:
        found.setdefault(child.revision, {})[child.role] = child
    return found


def newest_first(old: dict[str, Generation]) -> list[Generation]:
    """Old generations in the order in which they are drained."""
    return sorted(old.values(), key=lambda each: max(child.created for child in each.values()), reverse=True)


def total(old: dict[str, Generation], role: str) -> int:
    """Groups of a role over all old generations."""
    return sum(each[role].replicas for each in old.values() if role in each)


def initial_total(old: dict[str, Generation], role: str) -> int:
    """The same as they were when the rollout began."""
    return sum(each[role].initial for each in old.values() if role in each)


async def create_child(
    hands: Hands, owner: Doc, role: Doc, *, slice_key: str, revision: str, replicas: int, sliced: bool
) -> None:
    """Create the LeaderWorkerSet of one role; one of its name that is there already is left as it is."""
    namespace, set_name = where(owner)
    labels = child_labels(set_name, slice_key, revision, role["name"], sliced=sliced)
    spec: Doc = thaw(role["spec"])
    spec["replicas"] = replicas
    template = spec["leaderWorkerTemplate"]
    for part in ("workerTemplate", "leaderTemplate"):
        if part in template:
            _label(template[part], labels)
    own = role.get("metadata") or {}
    metadata: Doc = {
        "name": child_name(set_name, slice_key, revision, role["name"], sliced=sliced),
        "namespace": namespace,
        "labels": {**(own.get("labels") or {}), **labels},
        "ownerReferences": [owner_reference(owner, blocks=False)],
    }
    if own.get("annotations"):
        metadata["annotations"] = dict(own["annotations"])
    try:
        await hands.create(
            {
                "apiVersion": "leaderworkerset.x-k8s.io/v1",
                "kind": "LeaderWorkerSet",
                "metadata": metadata,
                "spec": spec,
            }
        )
    except ApiProblem as problem:
        if problem.reason != "AlreadyExists":
            raise


def _label(template: Doc, labels: dict[str, str]) -> None:
    """Labels of a set on a pod template: they win over its author's."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    template["metadata"] = metadata


async def scale_child(hands: Hands, child: Child, replicas: int) -> None:
    """Write the number of groups of one child."""
    namespace, name = where(child.doc)
    await hands.patch(GROUP_SETS, namespace, name, {"spec": {"replicas": replicas}})


def role_names(roles: Sequence[Doc]) -> list[str]:
    """Names in the order of the spec."""
    return [str(role["name"]) for role in roles]
