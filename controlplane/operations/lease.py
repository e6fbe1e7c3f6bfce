"""The installation Lease as it stands in a cluster: who may write to it, and how often that has changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.kube.resources import LEASES

Json = dict[str, Any]

LEASE_NAME = "lockstep-installation"
LEASE_NAMESPACE = "lockstep"
RESCUE = "rescue-"  # each run of the rescue program is an installation of its own, under this and a UUID


def holder_of(lease: Mapping[str, Any] | None) -> str:
    """Who holds it; "" for nobody."""
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def transitions_of(lease: Mapping[str, Any] | None) -> int:
    """How often it has changed hands."""
    return int(((lease or {}).get("spec") or {}).get("leaseTransitions") or 0)


def lease_body(*, holder: str, transitions: int, at: datetime) -> Json:
    """A Lease for this holder."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": holder,
            "leaseTransitions": transitions,
            "acquireTime": at.isoformat().replace("+00:00", "Z"),
        },
    }


def is_rescue(holder: str) -> bool:
    """Whether an installation is one run of the rescue program: without the Lease it never writes again."""
    return holder.startswith(RESCUE)
