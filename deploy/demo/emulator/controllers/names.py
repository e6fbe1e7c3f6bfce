"""Names, labels and annotations of what the controllers make, in both schemes of DisaggregatedSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Doc = dict[str, Any]

PODS = "pods"
NODES = "nodes"
SERVICES = "services"
STATEFUL_SETS = "statefulsets.apps"
REPLICA_SETS = "replicasets.apps"
DEPLOYMENTS = "deployments.apps"
JOBS = "jobs.batch"
GROUP_SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
SETS = "disaggregatedsets.disaggregatedset.x-k8s.io"
SCALERS = "disaggregatedsetrolescalers.disaggregatedset.x-k8s.io"

SET_GROUP = "disaggregatedset.x-k8s.io"
SET_NAME = f"{SET_GROUP}/name"
SET_ROLE = f"{SET_GROUP}/role"
SET_SLICE = f"{SET_GROUP}/slice"
SET_REVISION = f"{SET_GROUP}/revision"
INITIAL_REPLICAS = f"{SET_GROUP}/initial-replicas"
ONLY_SLICE = "0"

_LWS = "leaderworkerset.sigs.k8s.io"
LWS_NAME = f"{_LWS}/name"
GROUP_INDEX = f"{_LWS}/group-index"
WORKER_INDEX = f"{_LWS}/worker-index"
GROUP_KEY = f"{_LWS}/group-key"
TEMPLATE_HASH = f"{_LWS}/template-revision-hash"
SIZE = f"{_LWS}/size"
LEADER_NAME = f"{_LWS}/leader-name"
LWS_REPLICAS = f"{_LWS}/replicas"
SUBDOMAIN_POLICY = f"{_LWS}/subdomainPolicy"
EXCLUSIVE = f"{_LWS}/exclusive-topology"


def labels_of(doc: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an object; empty where it has none."""
    return (doc.get("metadata") or {}).get("labels") or {}


def annotations_of(doc: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of an object; empty where it has none."""
    return (doc.get("metadata") or {}).get("annotations") or {}


def where(doc: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    metadata = doc["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def owner_reference(owner: Doc, *, blocks: bool) -> Doc:
    """An entry of ownerReferences that makes ``owner`` the controller of another object."""
    made = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**made, "blockOwnerDeletion": True} if blocks else made


def controller_of(doc: Mapping[str, Any]) -> Doc | None:
    """The entry of ownerReferences that is the controller, or None."""
    for reference in doc["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def owned_by(doc: Mapping[str, Any], kind: str) -> tuple[str, str] | None:
    """Namespace and name of an object's controller where it is of ``kind``."""
    owner = controller_of(doc)
    if owner is None or owner["kind"] != kind:
        return None
    return doc["metadata"].get("namespace", ""), owner["name"]


def child_name(set_name: str, slice_key: str, revision: str, role: str, *, sliced: bool) -> str:
    """The name of one LeaderWorkerSet of a set; without a slice up to 0.9.0."""
    middle = f"{slice_key}-{revision}" if sliced else revision
    return f"{set_name}-{middle}-{role}"


def child_labels(set_name: str, slice_key: str, revision: str, role: str, *, sliced: bool) -> dict[str, str]:
    """The labels that a set puts on its LeaderWorkerSets and their pod templates."""
    made = {SET_NAME: set_name, SET_ROLE: role, SET_REVISION: revision}
    if sliced:
        return {**made, SET_SLICE: slice_key, "app": f"{set_name}-{slice_key}-{role}"}
    return {**made, "app": f"{set_name}-{role}"}


def ordinal_of(name: str) -> int:
    """The number at the end of a pod's name; -1 where there is none."""
    _, _, last = name.rpartition("-")
    return int(last) if last.isdigit() else -1


def condition(doc: Mapping[str, Any], kind: str) -> Doc:
    """A condition of an object's status; empty where it has none of that type."""
    for each in (doc.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return dict(each)
    return {}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs and its Ready condition is True."""
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and condition(pod, "Ready").get("status") == "True"


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod counts as one: not ended and not asked to go."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def seconds_between(since: str, until: str) -> float:
    """Seconds from one timestamp of a document to another."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
