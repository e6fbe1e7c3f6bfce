"""A cluster being filled pod by pod: which node takes the next pod, and why the others do not.

Filters are those of kube-scheduler 1.36 in its order: unschedulable, taints, node selector and affinity,
host ports and resources, then LeaderWorkerSet's exclusive topology, which its webhook writes as required
affinity of a group's pods to each other and anti-affinity to pods of other groups in the same namespace.
Scores only approximate the scheduler's; verdicts must not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from policy.topology.facts import GROUP_KEY, HOST_PORT, Cluster, Demand, Node, Pod
from policy.topology.selectors import Taint, first_untolerated

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
# What the scheduler assumes for a score when a pod asks for nothing: a tenth of a core and 200 MB.
ASSUMED = {"cpu": 100, "memory": 200 * 1024 * 1024}

SET_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"

Domain = tuple[str, str, str]  # label key, label value, namespace


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Why one node does not take a pod: `short` is equal for equal causes, `sentence` has the numbers."""

    node: str
    code: str
    short: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Seat:
    """One pod to place. `group` identifies its group within the namespace, None for a pod of no group."""

    label: str
    namespace: str
    demand: Demand
    group: str | None = None
    group_name: str = ""
    exclusive: str | None = None


class Ledger:
    """Free resources and group domains of a cluster, changed by every pod that is placed."""

    def __init__(self, cluster: Cluster, seats: Iterable[Seat]) -> None:
        wanted = tuple(seats)
        ports = {n for s in wanted for n, _ in s.demand.requests if n.startswith(HOST_PORT)}
        self.nodes: Sequence[Node] = cluster.nodes
        self.free = [{**dict.fromkeys(ports, 1), **node.allocatable} for node in cluster.nodes]
        self.placed_here = [0] * len(cluster.nodes)
        self._assumed = [{"cpu": 0, "memory": 0} for _ in cluster.nodes]
        self._index = {node.name: i for i, node in enumerate(cluster.nodes)}
        placed = [pod for pod in cluster.pods if pod.node in self._index]
        self._keys = sorted(
            {s.exclusive for s in wanted if s.exclusive} | {p.exclusive for p in placed if p.exclusive}
        )
        # Groups with a pod in a domain, and those of them that want it for themselves; identity to name.
        self._present: dict[Domain, dict[str, str]] = {}
        self._claimed: dict[Domain, dict[str, str]] = {}
        self._homes: dict[tuple[str, str, str], set[str]] = {}
        self._fixed: dict[tuple[object, ...], tuple[NodeReason | None, ...]] = {}
        self._suitable: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._queues: dict[Demand, list[tuple[int, int, int]]] = {}
        for pod in placed:
            self.take(self._index[pod.node or ""], seat_of(pod))

    def take(self, i: int, seat: Seat) -> None:
        """Put a pod on node `i`, whether or not it fits."""
        free, assumed = self.free[i], self._assumed[i]
        asked = dict(seat.demand.requests)
        for name, amount in asked.items():
            free[name] = free.get(name, 1 if name.startswith(HOST_PORT) else 0) - amount
        for name, amount in ASSUMED.items():
            assumed[name] += asked.get(name, amount)
        if seat.group is None:
            return
        for key in self._keys:
            value = self.nodes[i].labels.get(key)
            if value is None:
                continue
            domain = (key, value, seat.namespace)
            self._present.setdefault(domain, {})[seat.group] = seat.group_name
            self._homes.setdefault((key, seat.namespace, seat.group), set()).add(value)
            if seat.exclusive == key:
                self._claimed.setdefault(domain, {})[seat.group] = seat.group_name

    def place(self, seat: Seat) -> int | None:
        """Put a pod on the best node that takes it and return its index, or None if no node does."""
        best = self._best_anywhere(seat) if self._keys else self._best_by_resources(seat.demand)
        if best is not None:
            self.placed_here[best] += 1
            self.take(best, seat)
        return best

    def _best_anywhere(self, seat: Seat) -> int | None:
        """The best node by looking at each: a domain closed to one group may be open to the next."""
        open_nodes = (
            i
            for i in self._candidates(seat.demand)
            if self._fits(i, seat.demand) and self._topology(i, seat) is None
        )
        return min(open_nodes, key=lambda i: self._rank(i, seat.demand), default=None)

    def _best_by_resources(self, demand: Demand) -> int | None:
        """The same without exclusive groups: nodes only fill up, so a stale rank is never too bad."""
        if demand not in self._queues:
            self._queues[demand] = [self._rank(i, demand) for i in self._candidates(demand)]
            heapify(self._queues[demand])
        queue = self._queues[demand]
        while queue:
            i = queue[0][2]
            rank = self._rank(i, demand)
            if not self._fits(i, demand):
                heappop(queue)
            elif rank == queue[0]:
                return i
            else:
                heapreplace(queue, rank)
        return None

    def _rank(self, i: int, demand: Demand) -> tuple[int, int, int]:
        """Lowest is best: most of cpu and memory left, then fewest pods placed here, then order."""
        return (-self._score(i, demand), self.placed_here[i], i)

    def refusal(self, i: int, seat: Seat) -> NodeReason | None:
        """Why node `i` does not take the pod now, by the first filter that refuses; None if it does."""
        fixed = self._fixed_refusals(seat.demand)[i]
        if fixed is not None:
            return fixed
        return self._shortage(i, seat.demand) or self._topology(i, seat)

    def open_to(self, seat: Seat) -> int:
        """Bit mask of the nodes that take the pod now."""
        mask = 0
        for i in self._candidates(seat.demand):
            if self._fits(i, seat.demand) and self._topology(i, seat) is None:
                mask |= 1 << i
        return mask

    def has_pods(self, seat: Seat) -> bool:
        """Whether the seat's group already has a pod in a domain, which binds the rest of it."""
        return any((key, seat.namespace, seat.group or "") in self._homes for key in self._keys)

    def holders(self, key: str, value: str, namespace: str) -> Mapping[str, str]:
        """Groups of a namespace that have a pod in a domain, identity to name."""
        return self._present.get((key, value, namespace), {})

    def _candidates(self, demand: Demand) -> tuple[int, ...]:
        signature = _signature(demand)
        if signature not in self._suitable:
            refusals = self._fixed_refusals(demand)
            self._suitable[signature] = tuple(i for i, why in enumerate(refusals) if why is None)
        return self._suitable[signature]

    def _fixed_refusals(self, demand: Demand) -> tuple[NodeReason | None, ...]:
        """Refusals that do not depend on other pods, one per node."""
        signature = _signature(demand)
        if signature not in self._fixed:
            self._fixed[signature] = tuple(_fixed_refusal(node, demand) for node in self.nodes)
        return self._fixed[signature]

    def _fits(self, i: int, demand: Demand) -> bool:
        free = self.free[i]
        return all(free.get(name, 0) >= amount for name, amount in demand.requests)

    def _shortage(self, i: int, demand: Demand) -> NodeReason | None:
        free, node = self.free[i], self.nodes[i]
        short = [(name, amount) for name, amount in demand.requests if free.get(name, 0) < amount]
        if not short:
            return None
        name, amount = short[0]
        if name.startswith(HOST_PORT):
            port = name.removeprefix(HOST_PORT)
            return NodeReason(
                node.name, "host-port", f"host port {port} is taken", f"Host port {port} is taken."
            )
        if name == "pods":
            total = node.allocatable.get(name, 0)
            return NodeReason(
                node.name, "too-many-pods", "Too many pods", f"All {total} pod places are taken."
            )
        parts = [
            f"{n} (needs {a}, {max(0, free.get(n, 0))} of {node.allocatable.get(n, 0)} free)"
            for n, a in short
        ]
        return NodeReason(
            node.name, "insufficient", f"Insufficient {name}", f"Insufficient {', '.join(parts)}."
        )

    def _topology(self, i: int, seat: Seat) -> NodeReason | None:
        if seat.group is None:
            return None
        node = self.nodes[i]
        if seat.exclusive is not None:
            why = self._exclusive(node, seat, seat.exclusive)
            if why is not None:
                return why
        for key in self._keys:
            claimed = self._claimed.get((key, node.labels.get(key, ""), seat.namespace), {})
            for group, name in claimed.items():
                if group != seat.group:
                    return _domain_reason(node, key, f"{key} {node.labels[key]} belongs to {name} alone.")
        return None

    def _exclusive(self, node: Node, seat: Seat, key: str) -> NodeReason | None:
        value = node.labels.get(key)
        if value is None:
            return NodeReason(node.name, "no-domain", f"no label {key}", f"The node has no label {key}.")
        home = self._homes.get((key, seat.namespace, seat.group or ""))
        if home and value not in home:
            return _domain_reason(node, key, f"The group is in {key} {', '.join(sorted(home))}.")
        for group, name in self.holders(key, value, seat.namespace).items():
            if group != seat.group:
                return _domain_reason(node, key, f"{key} {value} already holds {name}.")
        return None

    def _score(self, i: int, demand: Demand) -> int:
        """Free share of cpu and memory after placing, 0 to 200; the scheduler's LeastAllocated."""
        asked = dict(demand.requests)
        score = 0
        for name, default in ASSUMED.items():
            total = self.nodes[i].allocatable.get(name, 0)
            left = total - self._assumed[i][name] - asked.get(name, default)
            score += max(0, left) * 100 // total if total else 0
        return score


def seat_of(pod: Pod) -> Seat:
    """The seat that an existing pod takes or waits for."""
    group = pod.labels.get(GROUP_KEY)
    name = f"{pod.labels.get(SET_NAME, pod.name)} group {pod.labels.get(GROUP_INDEX, '?')}"
    return Seat(pod.name, pod.namespace, pod.demand, group, name if group else "", pod.exclusive)


def _signature(demand: Demand) -> tuple[object, ...]:
    return (demand.node_selector, demand.node_terms, demand.tolerations)


def _fixed_refusal(node: Node, demand: Demand) -> NodeReason | None:
    if node.unschedulable and first_untolerated([UNSCHEDULABLE], demand.tolerations):
        return NodeReason(node.name, "unschedulable", "unschedulable", "The node is cordoned.")
    taints = node.taints if node.ready else (NOT_READY, *node.taints)
    taint = first_untolerated(taints, demand.tolerations)
    if taint is not None:
        text = f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
        return NodeReason(node.name, "taint", f"untolerated taint {text}", f"Taint {text} is not tolerated.")
    for key, value in demand.node_selector:
        if node.labels.get(key) != value:
            have = f"it has {node.labels[key]}" if key in node.labels else "it has no such label"
            return NodeReason(
                node.name, "selector", "node selector or affinity", f"Selector {key}={value}: {have}."
            )
    terms = demand.node_terms
    if terms is not None and not any(term.matches(node.name, node.labels) for term in terms):
        return NodeReason(
            node.name, "selector", "node selector or affinity", "No term of its node affinity matches."
        )
    return None


def _domain_reason(node: Node, key: str, sentence: str) -> NodeReason:
    return NodeReason(node.name, "exclusive-topology", f"exclusive topology {key}", sentence)
