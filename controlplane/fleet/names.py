"""Labels and names of what a DisaggregatedSet creates, in both schemes: LWS 0.9.0 without a slice, newer
with one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Json = dict[str, Any]

SET_NAME = "disaggregatedset.x-k8s.io/name"
SET_ROLE = "disaggregatedset.x-k8s.io/role"
SET_SLICE = "disaggregatedset.x-k8s.io/slice"
SET_REVISION = "disaggregatedset.x-k8s.io/revision"
INITIAL_REPLICAS = "disaggregatedset.x-k8s.io/initial-replicas"
# Every label that the controller puts on LeaderWorkerSets and pod templates; a user's own `app` is
# overwritten.
INJECTED_LABELS = frozenset({SET_NAME, SET_ROLE, SET_SLICE, SET_REVISION, "app"})

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
TEMPLATE_HASH = "leaderworkerset.sigs.k8s.io/template-revision-hash"

# The slice of objects that carry no slice label: all of them in 0.9.0, adopted ones of slice 0 later.
ONLY_SLICE = "0"


def labels_of(item: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an object; empty where it has none."""
    return (item.get("metadata") or {}).get("labels") or {}


def slice_of(item: Mapping[str, Any]) -> str:
    """The slice that an object belongs to, as text."""
    return labels_of(item).get(SET_SLICE) or ONLY_SLICE


def private_service_name(child: str) -> str:
    """Name of the headless Service that selects the ready pods of one LeaderWorkerSet."""
    return f"{child}-prv"


def owner_uid(item: Mapping[str, Any], kind: str) -> str:
    """UID of the controlling owner when it is of `kind`, else an empty string."""
    for owner in (item.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == kind:
            return str(owner.get("uid") or "")
    return ""


def read_time(text: object) -> datetime | None:
    """A Kubernetes timestamp (RFC 3339, UTC) as an aware datetime; None where it is absent or unreadable."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def created_at(item: Mapping[str, Any]) -> datetime | None:
    """When an object was created."""
    return read_time((item.get("metadata") or {}).get("creationTimestamp"))


def write_time(moment: datetime | None) -> str | None:
    """The inverse of `read_time` for JSON summaries."""
    return moment.isoformat() if moment else None
