"""Roles of a set as the API server stores them."""

from __future__ import annotations

from typing import Any


def container(name: str = "engine", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example/engine:1.0",
        "args": ["serve", "--port", "8000"],
        "env": [
            {"name": "LOG", "value": "info"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ],
        "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "4"}},
    } | fields


def template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def role(
    name: str,
    *,
    replicas: int = 2,
    leader: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    pace: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    group: dict[str, Any] = {
        "size": 1,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": worker or template(),
    }
    if leader:
        group["leaderTemplate"] = leader
    spec: dict[str, Any] = {
        "replicas": replicas,
        "startupPolicy": "LeaderCreated",
        "leaderWorkerTemplate": group,
    }
    if pace is not None:
        spec["rolloutStrategy"] = {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"partition": 0, **pace},
        }
    return {"name": name, "spec": spec, **fields}


def pair() -> list[dict[str, Any]]:
    """Prefill (one template) and decode (leader and worker)."""
    return [
        role("prefill", replicas=4, pace={"maxSurge": 1, "maxUnavailable": 0}),
        role("decode", leader=template(), worker=template()),
    ]
