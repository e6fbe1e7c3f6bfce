"""Who else writes a set: owners and continuous deployers, as its metadata names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Keys that say that a continuous deployer, not a person, owns the set.
TRACKERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


def outside_writers(live: Mapping[str, Any]) -> tuple[str, ...]:
    """Controllers that own an object, and deployers that track it, in words."""
    metadata = live["metadata"]
    owners = [f"{o['kind']} {o['name']}" for o in metadata.get("ownerReferences", []) if o.get("controller")]
    keys = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return tuple(owners + sorted({who for key, who in TRACKERS.items() if key in keys}))
