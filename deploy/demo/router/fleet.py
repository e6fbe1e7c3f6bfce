"""What the router knows of the cluster: the pool, the pods of its namespace, the objectives. Kept by watches.

Nothing is guessed: before the first list of pods there are no endpoints, and without the pool object there is no pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.demo.router.selectors import Selector, match_labels

Doc = dict[str, Any]

ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
POOL_GROUP = "inference.networking.k8s.io"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as much of it as routing needs. `ready` is false for one that is being deleted."""

    name: str
    namespace: str
    ip: str
    labels: Mapping[str, str]
    ready: bool
    active_ports: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One target port of one pod; `rank` is the position of the port in the pool's list."""

    pod: Pod
    rank: int
    port: int

    @property
    def address(self) -> str:
        """`ip:port`."""
        return f"{self.pod.ip}:{self.port}"

    @property
    def name(self) -> str:
        """The endpoint's name in metrics: `<pod>-rank-<i>`."""
        return f"{self.pod.name}-rank-{self.rank}"


@dataclass(frozen=True, slots=True)
class Pool:
    """An InferencePool: which pods, which ports."""

    name: str
    selector: Selector
    ports: tuple[int, ...]


@dataclass
class Fleet:
    """The state that requests are judged by; `version` grows with every change of pods or pool."""

    pool: Pool | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    pods_known: bool = False
    objectives: dict[str, int] = field(default_factory=dict)
    version: int = 0
    _endpoints: tuple[Endpoint, ...] = ()
    _by_address: dict[str, Endpoint] = field(default_factory=dict)
    _at: int = -1

    def set_pool(self, pool: Pool | None) -> None:
        """Replace the pool; None when the object is gone."""
        self.pool = pool
        self.version += 1

    def set_pods(self, pods: Iterable[Pod]) -> None:
        """Replace all pods by those of a complete list."""
        self.pods = {pod.name: pod for pod in pods}
        self.pods_known = True
        self.version += 1

    def put_pod(self, pod: Pod) -> None:
        """Take in one added or changed pod."""
        if self.pods.get(pod.name) != pod:
            self.pods[pod.name] = pod
            self.version += 1

    def drop_pod(self, name: str) -> None:
        """Forget one pod."""
        if self.pods.pop(name, None) is not None:
            self.version += 1

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints of the pool: each target port of each Ready pod that the selector matches."""
        if self._at != self.version:
            self._endpoints = tuple(self._build()) if self.pods_known and self.pool else ()
            self._by_address = {endpoint.address: endpoint for endpoint in self._endpoints}
            self._at = self.version
        return self._endpoints

    def at(self, address: str) -> Endpoint | None:
        """The endpoint of an `ip:port`, while it is one of the pool."""
        self.endpoints()
        return self._by_address.get(address)

    def priority(self, objective: str) -> int:
        """Priority of a request that names this objective: 0 where it is unknown or says none."""
        return self.objectives.get(objective, 0)

    def _build(self) -> Iterable[Endpoint]:
        assert self.pool is not None
        for name in sorted(self.pods):
            pod = self.pods[name]
            if pod.ready and pod.ip and self.pool.selector.matches(pod.labels):
                for rank, port in enumerate(self.pool.ports):
                    if pod.active_ports is None or port in pod.active_ports:
                        yield Endpoint(pod, rank, port)


def pod_of(document: Doc) -> Pod:
    """The pod of an API object. Ready = the condition says so and nobody deletes the pod."""
    meta, status = document["metadata"], document.get("status") or {}
    ready = "deletionTimestamp" not in meta and any(
        one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()
    )
    notes = meta.get("annotations") or {}
    listed = next((notes[name] for name in ACTIVE_PORTS if name in notes), None)
    ports = None
    if listed is not None:
        ports = frozenset(int(part) for part in listed.split(",") if part.strip().isdigit())
    return Pod(
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        ip=status.get("podIP") or "",
        labels=dict(meta.get("labels") or {}),
        ready=ready,
        active_ports=ports,
    )


def pool_of(document: Doc) -> Pool:
    """The pool of an InferencePool v1 object."""
    spec = document["spec"]
    return Pool(
        name=document["metadata"]["name"],
        selector=match_labels((spec.get("selector") or {}).get("matchLabels") or {}),
        ports=tuple(int(one["number"]) for one in spec.get("targetPorts") or ()),
    )


def objective_of(document: Doc, pool: str) -> tuple[str, int] | None:
    """(name, priority) of an InferenceObjective for this pool; None when its poolRef names another one."""
    spec = document.get("spec") or {}
    ref = spec.get("poolRef") or {}
    if ref.get("name") != pool or ref.get("group", POOL_GROUP) != POOL_GROUP:
        return None
    return document["metadata"]["name"], int(spec.get("priority") or 0)
