"""What a plan has to be judged against beside the set itself: nodes, pods, quotas, scalers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.holds.live import LiveSet
from controlplane.holds.scalers.seen import Scaler, list_scalers, targets_of
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, ObjectMissing
from controlplane.kube.resources import NODES, PODS, RESOURCE_QUOTAS
from controlplane.upgrades.models import Plan

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Raw objects; `unread` names what this account may not see, so that the verdict can say what it does not know."""

    nodes: tuple[Json, ...]
    pods: tuple[Json, ...]
    quotas: tuple[Json, ...]
    scalers: tuple[Scaler, ...]
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
    scalers = list_scalers(kube, namespace)
    return Surroundings(
        nodes=tuple(items(NODES)),
        pods=tuple(items(PODS)),
        quotas=tuple(items(RESOURCE_QUOTAS, namespace)),
        scalers=scalers.aimed_at(targets_of(live)),
        unread=(*unread, *scalers.unread),
    )
