"""What a request path is made of, read from a cluster in a few list calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.fleet.names import SET_NAME, labels_of
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, ObjectMissing
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HTTP_ROUTES,
    INFERENCE_POOLS,
    OBJECTIVES,
    OLDER_OBJECTIVES,
    PODS,
    SERVICES,
    Resource,
)

Json = dict[str, Any]
# Namespace and name of a ConfigMap → the object, None where there is none.
ReadConfigMap = Callable[[str, str], Json | None]


@dataclass(frozen=True, slots=True)
class PathObjects:
    """Everything around the pools of one namespace, or of a whole cluster. `unread` names kinds that this account
    may not list; a kind that the server does not know has no objects. `config_map` reads one ConfigMap."""

    pools: tuple[Json, ...]
    routes: tuple[Json, ...] = ()
    services: tuple[Json, ...] = ()
    deployments: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    objectives: tuple[Json, ...] = ()
    unread: tuple[str, ...] = ()
    config_map: ReadConfigMap = field(default=lambda namespace, name: None)


class Lookup:
    """The objects by what pools ask them for: built once, so that one of many pools costs what it costs alone."""

    def __init__(self, objects: PathObjects) -> None:
        self.objects = objects
        self._pods = _by_label(objects.pods, labels_of)
        self._deployments = _by_label(objects.deployments, _template_labels)
        self._services: dict[tuple[str, str], Json] = {}
        for each in objects.services:
            metadata = each["metadata"]
            self._services.setdefault((metadata["namespace"], metadata["name"]), each)

    def service(self, namespace: str, name: str) -> Json | None:
        """One Service by its name."""
        return self._services.get((namespace, name))

    def places(self, namespace: str, selector: Mapping[str, str]) -> list[int]:
        """Places in `objects.pods`, in order, of the pods of a namespace that may carry these labels: a superset.
        All of the namespace for an empty selector."""
        return _smallest(self._pods, namespace, selector)

    def pods(self, namespace: str, selector: Mapping[str, str]) -> list[Json]:
        """The pods of a namespace that carry these labels; none for an empty selector."""
        found = (self.objects.pods[place] for place in self.places(namespace, selector)) if selector else ()
        return [pod for pod in found if selector.items() <= labels_of(pod).items()]

    def deployment(self, namespace: str, selector: Mapping[str, str]) -> Json | None:
        """The first Deployment whose pods carry these labels; none for an empty selector."""
        places = _smallest(self._deployments, namespace, selector) if selector else []
        made = (self.objects.deployments[place] for place in places)
        return next((each for each in made if selector.items() <= _template_labels(each).items()), None)


# (namespace, key, value) → places of the objects with that label; (namespace, "", "") → all of the namespace.
_Buckets = dict[tuple[str, str, str], list[int]]


def _by_label(items: Iterable[Json], labels: Callable[[Json], Mapping[str, str]]) -> _Buckets:
    found: _Buckets = {}
    for place, item in enumerate(items):
        namespace = item["metadata"]["namespace"]
        found.setdefault((namespace, "", ""), []).append(place)
        for key, value in labels(item).items():
            found.setdefault((namespace, key, value), []).append(place)
    return found


def _smallest(buckets: _Buckets, namespace: str, selector: Mapping[str, str]) -> list[int]:
    pairs = list(selector.items()) or [("", "")]
    return min((buckets.get((namespace, key, value), []) for key, value in pairs), key=len)


def _template_labels(deployment: Json) -> Mapping[str, str]:
    return labels_of(((deployment.get("spec") or {}).get("template")) or {})


def read_objects(
    kube: Kube, namespace: str | None = None, *, config_map: ReadConfigMap | None = None
) -> PathObjects:
    """Read them live. Routes are read in all namespaces: one may lead here from elsewhere.

    Raises KubeError where the cluster does not answer.
    """
    unread: list[str] = []

    def items(
        resource: Resource, place: str | None = None, each: Callable[[Json], Json] | None = None
    ) -> list[Json]:
        try:
            return list(kube.list(resource, place, each=each).items)
        except ObjectMissing:
            return []
        except Denied:
            unread.append(resource.plural)
            return []

    pools = items(INFERENCE_POOLS, namespace)
    if not pools:
        return PathObjects(pools=(), unread=tuple(unread))
    return PathObjects(
        pools=tuple(pools),
        routes=tuple(items(HTTP_ROUTES)),
        services=tuple(items(SERVICES, namespace, keep_service)),
        deployments=tuple(items(DEPLOYMENTS, namespace)),
        pods=tuple(items(PODS, namespace, keep_pod)),
        objectives=tuple(items(OBJECTIVES, namespace) or items(OLDER_OBJECTIVES, namespace)),
        unread=tuple(dict.fromkeys(unread)),
        config_map=config_map or (lambda place, name: kube.find(CONFIG_MAPS, name, place)),
    )


def read_set_pods(kube: Kube, namespace: str, name: str) -> list[Json]:
    """The pods of one set, whole: their containers say what the engines are."""
    return list(kube.list(PODS, namespace, label_selector=f"{SET_NAME}={name}").items)


def keep_service(service: Json) -> Json:
    """Name and selector of a Service."""
    return {
        "metadata": _named(service),
        "spec": {"selector": (service.get("spec") or {}).get("selector") or {}},
    }


def keep_pod(pod: Json) -> Json:
    """A pod: labels, readiness, address, and what its containers are told to run."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {
            **_named(pod),
            "uid": metadata.get("uid"),
            "labels": metadata.get("labels") or {},
            "creationTimestamp": metadata.get("creationTimestamp"),
            "deletionTimestamp": metadata.get("deletionTimestamp"),
        },
        "spec": {
            "containers": [
                {
                    key: each[key]
                    for key in ("name", "image", "command", "args", "volumeMounts")
                    if key in each
                }
                for each in spec.get("containers") or ()
            ],
            "volumes": [each for each in spec.get("volumes") or () if "configMap" in each],
        },
        "status": {
            "phase": status.get("phase"),
            "podIP": status.get("podIP"),
            "startTime": status.get("startTime"),
            "conditions": [c for c in status.get("conditions") or () if c.get("type") == "Ready"],
            "containerStatuses": [
                {key: each.get(key) for key in ("name", "imageID", "restartCount", "state")}
                for each in status.get("containerStatuses") or ()
            ],
        },
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Ready, and not on its way out."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions: Iterable[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def restarts_of(pod: Mapping[str, Any]) -> int:
    """How often containers of a pod have restarted in place, all together: its UID stays the same then."""
    statuses: Iterable[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(each.get("restartCount") or 0) for each in statuses)


def _named(item: Mapping[str, Any]) -> Json:
    metadata = item["metadata"]
    return {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
