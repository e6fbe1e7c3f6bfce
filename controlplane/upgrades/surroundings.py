"""What a plan has to be judged against beside the set itself: nodes, pods, quotas, scalers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.holds.live import LiveSet
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, ObjectMissing
from controlplane.kube.resources import HPAS, NODES, PODS, RESOURCE_QUOTAS
from controlplane.upgrades.models import Plan

Json = dict[str, Any]
SCALABLE = {"DisaggregatedSet", "DisaggregatedSetRoleScaler"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Raw objects; `unread` names what this account may not see, so that the verdict can say what it does not know."""

    nodes: tuple[Json, ...]
    pods: tuple[Json, ...]
    quotas: tuple[Json, ...]
    scalers: tuple[str, ...]
    unread: tuple[str, ...]


def read_surroundings(kube: Kube, plan: Plan, live: LiveSet) -> Surroundings:
    """Read everything once. What is forbidden is named, not guessed; a kind that the server does not know has no
    objects."""
    unread: list[str] = []

    def items(resource: Any, namespace: str | None = None) -> list[Json]:
        try:
            return list(kube.list(resource, namespace).items)
        except ObjectMissing:
            return []
        except Denied:
            unread.append(resource.plural)
            return []

    namespace = plan.workload.namespace
    return Surroundings(
        nodes=tuple(items(NODES)),
        pods=tuple(items(PODS)),
        quotas=tuple(items(RESOURCE_QUOTAS, namespace)),
        scalers=tuple(_scalers(items(HPAS, namespace), live)),
        unread=tuple(unread),
    )


def _scalers(hpas: list[Json], live: LiveSet) -> list[str]:
    """HPAs of the set, its role scalers or its children, and roles that say themselves that a scaler owns them."""
    name = live.body["metadata"]["name"]
    children = {child.name for child in live.children.values()}
    roles = {f"{name}-{role['name']}" for role in live.roles}
    found = [
        f"{role['name']} (scaling mode External)"
        for role in live.roles
        if (role.get("scaling") or {}).get("mode") == "External"
    ]
    for hpa in hpas:
        target = hpa["spec"].get("scaleTargetRef", {})
        kind, aimed = target.get("kind", ""), target.get("name", "")
        ours = (kind in SCALABLE and (aimed == name or aimed in roles)) or (
            kind == "LeaderWorkerSet" and aimed in children
        )
        if ours:
            found.append(f"HorizontalPodAutoscaler {hpa['metadata']['name']} on {kind} {aimed}")
    return found
