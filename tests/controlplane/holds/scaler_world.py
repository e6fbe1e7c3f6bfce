"""A cluster in memory with one set and scalers on it: enough of an API server for merge patches under UID and
resourceVersion, dry runs, and the defaults that autoscaling/v2 fills in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

from controlplane.kube.client import Listing
from controlplane.kube.errors import Conflict, Denied, ObjectMissing
from controlplane.kube.resources import LEASES, Resource
from controlplane.operations.clock import database_now
from controlplane.operations.contract import StepContext
from controlplane.operations.installation import LEASE_NAME, LEASE_NAMESPACE, this_installation
from controlplane.operations.models import Operation
from policy.rollout.scalers import HPA, POD_AUTOSCALER, SCALED_OBJECT, merged
from tests.controlplane.fleet.world import make_child, make_set
from tests.controlplane.memory_kube import MemoryKube
from tests.controlplane.upgrades.given import OLD, pair

Json = dict[str, Any]
SET = {"namespace": "llm", "name": "chat"}
CHILD = f"chat-{OLD}-decode"
FILLED_IN: Json = {
    "scaleUp": {
        "selectPolicy": "Max",
        "stabilizationWindowSeconds": 0,
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}


class ScalerWorld(MemoryKube):
    """Stands in for `Kube`. `writes` are (kind, name) of real ones; `before_write` may interfere with the next."""

    def __init__(self, *items: Json) -> None:
        super().__init__()
        self._versions = itertools.count(1)
        self.writes: list[tuple[str, str]] = []
        self.unread: set[str] = set()
        self.refused: set[str] = set()  # names whose patches are denied
        self.before_write: Callable[[], None] | None = None
        body = {**make_set(pair()), "kind": "DisaggregatedSet", "apiVersion": "disaggregatedset.x-k8s.io/v1"}
        children = [
            {**make_child(each, OLD, each["spec"]["replicas"]), "kind": "LeaderWorkerSet"} for each in pair()
        ]
        lease = {
            "kind": LEASES.kind,
            "metadata": {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": str(this_installation().pk), "leaseTransitions": 0},
        }
        for item in (body, *children, lease, *items):
            self.put(item)

    def put(self, item: Json) -> Json:
        """Store an object under a new resourceVersion."""
        stored = deepcopy(item)
        metadata = stored["metadata"]
        metadata["resourceVersion"] = str(next(self._versions))
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        if stored["kind"] == HPA and stored["spec"].get("behavior"):
            stored["spec"]["behavior"] = merged(FILLED_IN, stored["spec"]["behavior"])
        self.objects[stored["kind"], metadata.get("namespace", ""), metadata["name"]] = stored
        return deepcopy(stored)

    def at(self, kind: str, name: str = "busy") -> Json:
        """An object as it stands."""
        return deepcopy(self.objects[kind, "llm", name])

    def edit(self, kind: str, patch: Json, name: str = "busy", *, who: str = "kubectl-edit") -> None:
        """Somebody else's write."""
        changed = merged(self.objects[kind, "llm", name], patch)
        changed["metadata"].setdefault("managedFields", []).append(
            {"manager": who, "time": "2026-11-30T05:00:00Z", "operation": "Update"}
        )
        self.put(changed)

    def remove(self, kind: str, name: str = "busy") -> None:
        """It is deleted."""
        del self.objects[kind, "llm", name]

    # --- what the product calls

    def list(
        self, resource: Resource, namespace: str | None = None, label_selector: str = "", **_: Any
    ) -> Listing:
        """Objects of a kind; labels are not looked at."""
        if resource.plural in self.unread:
            raise Denied(f"cannot list resource {resource.plural}", status=403)
        found = [
            deepcopy(item)
            for (kind, where, _name), item in sorted(self.objects.items())
            if kind == resource.kind and namespace in (None, where)
        ]
        if not found:
            raise ObjectMissing("the server could not find the requested resource", status=404)
        return Listing(found, "1")

    def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Json,
        *,
        resource_version: str | None,
        dry_run: bool = False,
    ) -> Json:
        """A merge patch of exactly the object that was read."""
        if not dry_run and self.before_write:
            interfere, self.before_write = self.before_write, None
            interfere()
        stands = self.get(resource, name, namespace)
        metadata = stands["metadata"]
        if resource_version != metadata["resourceVersion"] or body["metadata"]["uid"] != metadata["uid"]:
            raise Conflict("moved on", status=409)
        if name in self.refused:
            raise Denied(f"admission webhook denied {name}", status=403)
        changed = merged(stands, body)
        if changed["metadata"].get("annotations") == {}:
            del changed["metadata"]["annotations"]
        if dry_run:
            kept = deepcopy(self.objects)
            stored = self.put(changed)
            self.objects = kept
            return stored
        self.writes.append((resource.kind, name))
        return self.put(changed)


def hpa(name: str = "busy", *, low: int = 2, high: int = 9, target: str = CHILD, **spec: Any) -> Json:
    """A HorizontalPodAutoscaler on the decode set."""
    return {
        "kind": HPA,
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {
            "scaleTargetRef": {"kind": "LeaderWorkerSet", "name": target},
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": [{"type": "Resource"}],
            **spec,
        },
    }


def scaled_object(name: str = "busy", *, annotations: Json | None = None) -> Json:
    """A ScaledObject of KEDA on the decode set."""
    return {
        "kind": SCALED_OBJECT,
        "metadata": {"name": name, "namespace": "llm", "annotations": {"team": "a", **(annotations or {})}},
        "spec": {
            "scaleTargetRef": {"kind": "LeaderWorkerSet", "name": CHILD},
            "triggers": [{"type": "cron"}],
        },
    }


def pod_autoscaler(name: str = "busy", *, target: Json | None = None) -> Json:
    """A PodAutoscaler of Knative."""
    return {
        "kind": POD_AUTOSCALER,
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {
            "scaleTargetRef": target or {"kind": "LeaderWorkerSet", "name": CHILD},
            "protocolType": "http1",
        },
    }


def context_of(
    operation: Operation, world: ScalerWorld, *, still_ours: bool = True, waited: float = 0.0
) -> StepContext:
    """What the engine hands to a step; `waited` seconds after its first claim."""
    operation.refresh_from_db()
    now = database_now()
    return StepContext(
        operation=operation,
        cluster=operation.cluster,
        step_id=1,
        step_index=1,
        attempt=1,
        first_claimed_at=now - timedelta(seconds=waited),
        fence=7,
        now=now,
        kube=world,  # type: ignore[arg-type]
        must_fence=True,
        still_ours=lambda: still_ours,
    )
