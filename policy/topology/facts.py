"""What a fit is computed from: nodes, pods, quotas and the groups that are to be placed.

Resources are integers in the scheduler's units: thousandths of a core for `cpu`, bytes, whole devices. Every
pod also asks for one of `pods`, and one of `host-port:<protocol>:<port>` for each port it opens on its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.topology.selectors import NodeTerm, Requirement, Taint, Toleration

GROUP_KEY = "leaderworkerset.sigs.k8s.io/group-key"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
SUBGROUP_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
HOST_PORT = "host-port:"

Resources = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that decides about placement and is not modelled.

    `restricts` is true where it can only keep pods from fitting, so that a proof that they do not fit stands.
    """

    code: str
    sentence: str
    restricts: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it. A node that is not ready is taken as tainted, as Kubernetes does."""

    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod asks of a node. Equal demands are interchangeable for the scheduler's filters."""

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    unknowns: tuple[Unknown, ...] = ()


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """A required anti-affinity term of a pod, other than LeaderWorkerSet's own.

    `namespaces` is None where they are selected by labels that are not known here.
    """

    selector: tuple[Requirement, ...]
    namespaces: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that exists. `node` is None while it is Pending; finished pods are not listed.

    `gated` pods wait for somebody else and are not in the scheduler's queue.
    """

    name: str
    namespace: str
    demand: Demand
    node: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    exclusive: str | None = None
    repels: tuple[AntiAffinity, ...] = ()
    priority: int = 0
    created: str = ""
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: limits and use by its resource names, in the scheduler's units."""

    name: str
    namespace: str
    hard: Resources
    used: Resources
    scopes: tuple[str, ...] = ()
    has_selector: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A LeaderWorkerSet group to place: the leader's demand, then one for each worker.

    `exclusive` is the node label whose domain the group shares with no other group of its namespace. Workers
    wait for the leader where the group is exclusive (LeaderWorkerSet creates them once it has a node) or
    `leader_first` is set.
    """

    role: str
    index: int
    namespace: str
    pods: tuple[Demand, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    exclusive: str | None = None
    leader_first: bool = False
    priority: int = 0
    preempts: bool = True

    @property
    def name(self) -> str:
        """Role and index, as a page names the group."""
        return f"{self.role} group {self.index}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything the groups meet: nodes, pods on them and before them in the queue, quotas."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...] = ()
    quotas: tuple[Quota, ...] = ()
