"""What the controller knows of the cluster, and which addresses stand behind a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Doc = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Pod:
    """What routing needs of a pod; ``ports`` are its named container ports."""

    labels: Mapping[str, str]
    ip: str
    ready: bool
    ports: Mapping[str, int]


@dataclass(frozen=True)
class Service:
    """What routing needs of a Service: its selector and, by port number, the target port."""

    selector: Mapping[str, str]
    targets: Mapping[int, int | str]


@dataclass(frozen=True)
class World:
    """One moment's copies, by (namespace, name); documents whole where status is written to them."""

    classes: Mapping[Key, Doc] = field(default_factory=dict)
    gateways: Mapping[Key, Doc] = field(default_factory=dict)
    routes: Mapping[Key, Doc] = field(default_factory=dict)
    pools: Mapping[Key, Doc] = field(default_factory=dict)
    services: Mapping[Key, Service] = field(default_factory=dict)
    pods: Mapping[Key, Pod] = field(default_factory=dict)


@dataclass(frozen=True)
class Pool:
    """One InferencePool as Envoy needs it.

    ``routers`` and ``engines`` are addresses "ip:port" of ready pods; engines are used without a router only,
    so only a pool that fails open has any. ``missing`` says why the pool has no router Service, if so.
    """

    namespace: str
    name: str
    routers: tuple[str, ...]
    engines: tuple[str, ...]
    fail_open: bool
    http2: bool
    authority: str
    missing: str = ""

    @property
    def full_name(self) -> str:
        """Namespace and name, as shown in logs."""
        return f"{self.namespace}/{self.name}"


def read_pod(doc: Doc) -> Pod:
    """A pod as routing sees it: not ready while it is being deleted."""
    meta, status = doc["metadata"], doc.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    ports = {
        port["name"]: int(port["containerPort"])
        for container in doc.get("spec", {}).get("containers", [])
        for port in container.get("ports") or []
        if port.get("name")
    }
    ip = status.get("podIP", "")
    ready = conditions.get("Ready") == "True" and "deletionTimestamp" not in meta
    return Pod(meta.get("labels") or {}, ip, ready and bool(ip), ports)


def read_service(doc: Doc) -> Service:
    """A Service as routing sees it; a port without target port is its own target."""
    spec = doc["spec"]
    ports = spec.get("ports") or []
    targets = {int(port["port"]): port.get("targetPort") or int(port["port"]) for port in ports}
    return Service(spec.get("selector") or {}, targets)


def read_pool(world: World, key: Key) -> Pool:
    """A pool with the addresses that stand behind it now; KeyError for an unknown pool."""
    spec = world.pools[key]["spec"]
    picker = spec.get("endpointPickerRef") or {}
    fail_open = picker.get("failureMode") == "FailOpen"
    routers, missing = _routers(world, key[0], picker)
    return Pool(
        *key,
        routers=routers,
        engines=_engines(world, key[0], spec) if fail_open else (),
        fail_open=fail_open,
        http2=spec.get("appProtocol") == "kubernetes.io/h2c",
        authority=f"{picker.get('name', 'none')}.{key[0]}",
        missing=missing,
    )


def _routers(world: World, namespace: str, picker: Doc) -> tuple[tuple[str, ...], str]:
    """Addresses of the ready pods behind the Service that a pool names, and why there is no such Service."""
    if not picker:
        return (), "the pool has no endpointPickerRef"
    if picker.get("group", "") != "" or picker.get("kind", "Service") != "Service":
        return (), "endpointPickerRef must name a Service"
    service = world.services.get((namespace, picker["name"]))
    if service is None:
        return (), f"there is no Service {namespace}/{picker['name']}"
    number = int((picker.get("port") or {}).get("number", 0))
    if number not in service.targets:
        return (), f"Service {namespace}/{picker['name']} has no port {number}"
    target = service.targets[number]
    found = set()
    for pod in _ready(world, namespace, service.selector):
        port = pod.ports.get(target) if isinstance(target, str) else target
        if port:
            found.add(f"{pod.ip}:{port}")
    return tuple(sorted(found)), ""


def _engines(world: World, namespace: str, spec: Doc) -> tuple[str, ...]:
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    ports = [int(port["number"]) for port in spec.get("targetPorts") or []]
    pods = _ready(world, namespace, selector)
    return tuple(sorted(f"{pod.ip}:{port}" for pod in pods for port in ports))


def _ready(world: World, namespace: str, selector: Mapping[str, str]) -> list[Pod]:
    """Ready pods that a selector finds; an empty selector finds none."""
    if not selector:
        return []
    return [
        pod
        for (where, _), pod in world.pods.items()
        if where == namespace and pod.ready and selector.items() <= pod.labels.items()
    ]
