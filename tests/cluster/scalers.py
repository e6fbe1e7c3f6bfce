"""Scalers on sets of the rig, and what its own HPA controller says and does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.fleet.connections import connect_cluster
from controlplane.operations.clock import database_now
from controlplane.operations.engine import advance
from controlplane.operations.models import Operation
from deploy.rig import Api, workloads
from tests.cluster.driving import Lockstep
from tests.cluster.midway import V2, Midway, small_roles
from workers.steps import STEPS

Json = dict[str, Any]
PAUSED = "lockstep.dev/paused"


def hpa(namespace: str, *, child: str, name: str = "busy", maxReplicas: int = 9, **spec: Any) -> Json:
    """A HorizontalPodAutoscaler on a LeaderWorkerSet. The rig has no metrics: it acts on its bounds alone."""
    target = {"apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet", "name": child}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "maxReplicas": maxReplicas, **spec},
    }


def scaled_object(namespace: str, *, child: str, name: str = "busy", annotations: Json | None = None) -> Json:
    """A ScaledObject on a LeaderWorkerSet: of KEDA's own kind; its operator is played by the test."""
    target = {"apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet", "name": child}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "scaleTargetRef": target,
            "triggers": [{"type": "cpu", "metadata": {"value": "50"}}],
        },
    }


def keda_says(client: Api, scaler: Json, *, paused: bool) -> None:
    """KEDA's operator notes whether a ScaledObject is paused."""
    condition = {"type": "Paused", "status": str(paused)}
    client.patch(f"{client.path(scaler)}/status", {"status": {"conditions": [condition]}})


def owner_of(body: Json) -> Json:
    """A reference to the object as the controller of another."""
    named = {"name": body["metadata"]["name"], "uid": body["metadata"]["uid"]}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], **named, "controller": True}


def rescales(client: Api, namespace: str, name: str = "busy") -> list[str]:
    """What the HPA controller tried, from its events: "reason: message"."""
    return [
        f"{each['reason']}: {each['message']}"
        for each in client.items(f"/api/v1/namespaces/{namespace}/events")
        if each["involvedObject"].get("kind") == "HorizontalPodAutoscaler"
        and each["involvedObject"].get("name") == name
        and each["reason"] in {"SuccessfulRescale", "FailedRescale"}
    ]


def history(client: Api, scaler: Json) -> list[Json]:
    """The scaler as it was stored again and again since `scaler` was read, up to now."""
    seen, version = [scaler], scaler["metadata"]["resourceVersion"]
    last = client.get(client.path(scaler))["metadata"]["resourceVersion"]
    if last == version:
        return seen
    for event in client.watch(client.collection(scaler), version=version):
        body = event["object"]
        if body["metadata"].get("uid") == scaler["metadata"]["uid"]:
            seen.append(body)
            if body["metadata"]["resourceVersion"] == last:
                return seen
    raise AssertionError("the watch ended before the present")


def pauses_of(bodies: list[Json]) -> list[bool]:
    """Whether it was paused, at each change of that."""
    seen: list[bool] = []
    for body in bodies:
        paused = PAUSED in body["metadata"].get("annotations", {})
        seen += [paused] if seen[-1:] != [paused] else []
    return seen


def as_before(body: Json) -> Json:
    """Everything of a scaler that people write: spec, labels, annotations."""
    metadata = body["metadata"]
    kept = {
        key: metadata[key] for key in ("name", "labels", "annotations", "ownerReferences") if key in metadata
    }
    return {"metadata": kept, "spec": body["spec"]}


class Scaled(Midway):
    """A started upgrade of a set with one scaler on it."""

    scaler: Json
    before: Json  # type: ignore[assignment]

    def now(self) -> Json:
        """The scaler as it stands."""
        client = self.client("admin")
        return client.get(client.path(self.scaler))

    def is_as_before(self) -> bool:
        """Whether everything that people write is what it was, to the byte."""
        return json.dumps(as_before(self.now()), sort_keys=True) == json.dumps(
            as_before(self.scaler), sort_keys=True
        )

    def change(self, patch: Json) -> None:
        """Somebody edits the scaler."""
        client = self.client("stranger")
        client.patch(client.path(self.scaler), patch)

    def result(self, step: str) -> Json:
        """What a step has done."""
        found: Json = self.operation.steps.get(name=f"holds.{step}", state="done").result
        return found


def scaled(
    lockstep: Lockstep,
    namespace: str,
    make_set: Callable[..., str],
    make: Callable[[str], Json],
    *,
    roles: list[Json] | None = None,
    **options: Any,
) -> Scaled:
    """A set, its scaler (made with the old label), and a started upgrade."""
    old = make_set(roles=roles or small_roles())
    client = lockstep.rig.client("stranger")
    stored = client.create(make(old))
    operation = lockstep.upgrade(namespace, "model", image=V2, **options)
    found = Scaled(lockstep, namespace, operation, old)
    found.scaler = stored
    return found


class PowerCut(BaseException):
    """Ends the claim where it is."""


def lost(midway: Scaled, *, after: int, plural: str = "horizontalpodautoscalers") -> None:
    """A worker is lost after so many real patches of scalers."""
    seen = 0

    def hook(phase: str, verb: str, resource: Any, name: str) -> None:
        nonlocal seen
        if (phase, verb, resource.plural) == ("after", "patch", plural):
            seen += 1
            if seen == after:
                raise PowerCut

    with pytest.raises(PowerCut):
        advance(
            operation_id=midway.operation.pk,
            steps=STEPS,
            connect=lambda cluster, on_call=None: connect_cluster(cluster, on_call=hook),  # type: ignore[arg-type]
            owner="lost",
        )
    Operation.objects.filter(pk=midway.operation.pk).update(lease_until=database_now())
