"""Documents of a served model, as a cluster would give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.paths.objects import PathObjects, keep_pod, keep_service
from deploy.demo.gateway.manifests import http_route
from deploy.demo.router.manifests import router_objects

Json = dict[str, Any]
NAMESPACE = "serving"
STARTED = "2026-11-30T10:00:00Z"
WRITTEN = "2026-11-30T09:00:00Z"


def engine(
    set_name: str, role: str, revision: str, index: int, *, ready: bool = True, worker: int = 0
) -> Json:
    """One engine pod of a set."""
    return {
        "metadata": {
            "name": f"{set_name}-{revision}-{role}-{index}-{worker}",
            "namespace": NAMESPACE,
            "uid": f"{set_name}-{revision}-{role}-{index}-{worker}",
            "labels": {
                "disaggregatedset.x-k8s.io/name": set_name,
                "disaggregatedset.x-k8s.io/role": role,
                "disaggregatedset.x-k8s.io/revision": revision,
                "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
            },
        },
        "spec": {"containers": [{"name": "engine", "image": "registry.example/engine:v1"}]},
        "status": {
            "podIP": f"127.9.{index}.{worker + 1}",
            "startTime": STARTED,
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def engines(set_name: str, counts: Mapping[tuple[str, str], int]) -> list[Json]:
    """(role, revision) → so many ready pods."""
    return [
        engine(set_name, role, revision, index)
        for (role, revision), count in counts.items()
        for index in range(count)
    ]


def objects(
    *names: str,
    pods: list[Json],
    routes: list[Json] | None = None,
    config: str | None = None,
    router_ready: bool = True,
    config_maps: Mapping[str, Json] | None = None,
    **router: Any,
) -> PathObjects:
    """Pools with their routers, a guarded route to each, and these engine pods."""
    docs = [
        doc
        for name in names
        for doc in router_objects(release=name, namespace=NAMESPACE, set_name=name, config=config, **router)
    ]
    kinds: dict[str, list[Json]] = {}
    for doc in docs:
        doc["metadata"].setdefault("creationTimestamp", WRITTEN)
        doc["metadata"].setdefault("uid", f"uid-{doc['kind']}-{doc['metadata']['name']}")
        kinds.setdefault(doc["kind"], []).append(doc)
    maps = {doc["metadata"]["name"]: doc for doc in kinds["ConfigMap"]}
    maps.update(config_maps or {})
    routers = [router_pod(each, ready=router_ready) for each in kinds["Deployment"]]
    made = [
        http_route(name, NAMESPACE, gateway="front", gateway_namespace=NAMESPACE, pools={name: 1})
        for name in names
    ]
    return PathObjects(
        pools=tuple(kinds["InferencePool"]),
        routes=tuple(made if routes is None else routes),
        services=tuple(keep_service(each) for each in kinds["Service"]),
        deployments=tuple(kinds["Deployment"]),
        pods=tuple(keep_pod(each) for each in [*pods, *routers]),
        config_map=lambda namespace, name: maps.get(name),
    )


def router_pod(deployment: Json, *, ready: bool = True, name: str = "abc", started: str = STARTED) -> Json:
    """A pod of a router's Deployment."""
    template = deployment["spec"]["template"]
    return {
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{name}",
            "namespace": NAMESPACE,
            "uid": "router-pod",
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
        "status": {
            "podIP": "127.9.200.1",
            "startTime": started,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "epp", "imageID": "registry.example/lockstep/router@sha256:aa"}],
        },
    }
