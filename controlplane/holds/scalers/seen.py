"""Which scalers aim at a set, read live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.fleet.names import owner_uid
from controlplane.holds.live import LiveSet
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, ObjectMissing
from controlplane.kube.resources import HPAS, POD_AUTOSCALERS, ROLE_SCALERS, SCALED_OBJECTS, Resource
from policy.rollout.scalers import (
    HPA,
    POD_AUTOSCALER,
    SCALED_OBJECT,
    Pause,
    Target,
    is_made_by_scaler,
    plan_pause,
    target_of,
)

Json = dict[str, Any]

RESOURCES: Mapping[str, Resource] = {
    HPA: HPAS,
    SCALED_OBJECT: SCALED_OBJECTS,
    POD_AUTOSCALER: POD_AUTOSCALERS,
}


@dataclass(frozen=True, slots=True)
class Scaler:
    """A scaler as it stands, what it aims at, and how it would be paused."""

    body: Json
    target: Target
    pause: Pause

    @property
    def uid(self) -> str:
        """UID of the object."""
        return str(self.body["metadata"]["uid"])

    @property
    def name(self) -> str:
        """`Kind name`."""
        return name_of(self.body)


@dataclass(frozen=True, slots=True)
class Listed:
    """Every scaler of a namespace, or of all; `unread` names the kinds (plural) that this account may not list."""

    bodies: tuple[Json, ...]
    unread: tuple[str, ...]

    @property
    def own(self) -> tuple[Json, ...]:
        """Those that no other scaler has made. A record of a pause counts on them alone: Knative copies the annotations
        of a PodAutoscaler onto the HPA that it makes."""
        return tuple(body for body in self.bodies if not is_made_by_scaler(body))

    def hpas_of(self, body: Mapping[str, Any]) -> list[str]:
        """Names of the HorizontalPodAutoscalers that another scaler has made and that still stand."""
        uid = body["metadata"]["uid"]
        return [
            each["metadata"]["name"]
            for each in self.bodies
            if each["kind"] == HPA and owner_uid(each, body["kind"]) == uid
        ]

    def aimed_at(self, targets: Mapping[tuple[str, str], Target]) -> tuple[Scaler, ...]:
        """Those that aim at one of the targets; one that another made is left to its maker."""
        return tuple(
            Scaler(body, targets[aimed], plan_pause(body, targets[aimed]))
            for body in self.own
            if (aimed := target_of(body)) in targets
        )


def name_of(body: Mapping[str, Any]) -> str:
    """`Kind name` of an object."""
    return f"{body['kind']} {body['metadata']['name']}"


def list_scalers(kube: Kube, namespace: str | None) -> Listed:
    """Every scaler of a namespace (None: of all). A kind that the server does not know has no objects."""
    bodies: list[Json] = []
    unread: list[str] = []
    for resource in RESOURCES.values():
        try:
            bodies += kube.list(resource, namespace).items
        except ObjectMissing:
            continue
        except Denied:
            unread.append(resource.plural)
    return Listed(tuple(bodies), tuple(unread))


def targets_of(live: LiveSet) -> dict[tuple[str, str], Target]:
    """What may be scaled of a set: its LeaderWorkerSets, whose numbers an operation changes; the role scalers of newer
    managers, which keep theirs; the set itself, which has no number (a scaler on it does nothing)."""
    name = live.body["metadata"]["name"]
    found = [Target(live.body.get("kind") or "DisaggregatedSet", name)]
    for role in live.roles:
        scaler = f"{name}-{role['name']}"
        found.append(Target(ROLE_SCALERS.kind, scaler, role["name"], live.scaled.get(role["name"])))
    for (_, _, role_name), child in sorted(live.children.items()):
        found.append(Target("LeaderWorkerSet", child.name, role_name, child.wanted, moves=True))
    return {(each.kind, each.name): each for each in found}
