"""Scalers on sets of the rig, and what its own HPA controller says and does."""

from __future__ import annotations

from typing import Any

from deploy.rig import Api, workloads

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


def rescales(client: Api, namespace: str, name: str = "busy") -> list[str]:
    """What the HPA controller tried, from its events: "reason: message"."""
    return [
        f"{each['reason']}: {each['message']}"
        for each in client.items(f"/api/v1/namespaces/{namespace}/events")
        if each["involvedObject"].get("kind") == "HorizontalPodAutoscaler"
        and each["involvedObject"].get("name") == name
        and each["reason"] in {"SuccessfulRescale", "FailedRescale"}
    ]


def as_before(body: Json) -> Json:
    """Everything of a scaler that people write: spec, labels, annotations."""
    metadata = body["metadata"]
    kept = {
        key: metadata[key] for key in ("name", "labels", "annotations", "ownerReferences") if key in metadata
    }
    return {"metadata": kept, "spec": body["spec"]}
