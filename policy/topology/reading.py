"""Facts out of Kubernetes objects, as plain mappings from the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from policy.topology.facts import (
    EXCLUSIVE,
    GROUP_KEY,
    HOST_PORT,
    SUBGROUP_EXCLUSIVE,
    AntiAffinity,
    Demand,
    Group,
    Node,
    Pod,
    Quota,
    Unknown,
)
from policy.topology.quantity import count
from policy.topology.selectors import NodeTerm, Requirement, Taint, Toleration

Object = Mapping[str, Any]
DEFAULT_SCHEDULER = "default-scheduler"
FINISHED = ("Succeeded", "Failed")


def read_node(node: Object) -> Node:
    """Facts of a v1 Node."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return Node(
        name=node["metadata"]["name"],
        labels=dict(node["metadata"].get("labels") or {}),
        allocatable={name: count(name, value) for name, value in (status.get("allocatable") or {}).items()},
        taints=tuple(
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        ready=conditions.get("Ready", "True") == "True",
    )


def read_pod(pod: Object) -> Pod | None:
    """Facts of a v1 Pod; None for a pod that has finished and holds nothing."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if status.get("phase") in FINISHED:
        return None
    labels = dict(meta.get("labels") or {})
    return Pod(
        name=meta["name"],
        namespace=meta["namespace"],
        demand=read_demand(spec),
        node=spec.get("nodeName") or None,
        labels=labels,
        exclusive=(meta.get("annotations") or {}).get(EXCLUSIVE) if GROUP_KEY in labels else None,
        repels=tuple(_anti_affinity(spec, meta["namespace"])),
        priority=int(spec.get("priority") or 0),
        created=str(meta.get("creationTimestamp") or ""),
        gated=bool(spec.get("schedulingGates")),
    )


def read_quota(quota: Object) -> Quota:
    """Facts of a v1 ResourceQuota; `hard` is what its status enforces, before the first status its spec."""
    spec, status = quota.get("spec") or {}, quota.get("status") or {}

    def counted(values: Object | None) -> dict[str, int]:
        return {name: count(_bare(name), value) for name, value in (values or {}).items()}

    return Quota(
        name=quota["metadata"]["name"],
        namespace=quota["metadata"]["namespace"],
        hard=counted(status.get("hard") or spec.get("hard")),
        used=counted(status.get("used")),
        scopes=tuple(spec.get("scopes") or ()),
        has_selector=bool((spec.get("scopeSelector") or {}).get("matchExpressions")),
    )


def read_groups(
    role: Object, *, namespace: str, how_many: int, first: int = 0, priority: int = 0
) -> tuple[Group, ...]:
    """Groups of one entry of a DisaggregatedSet's `spec.roles` (also a LeaderWorkerSet with a `name` added).

    `how_many` groups from index `first` on. `priority` is the value of the pods' priority class, which the
    template names but does not hold. Without a leader template leaders start from the worker template.
    """
    spec, meta = role["spec"], role.get("metadata") or {}
    template = spec["leaderWorkerTemplate"]
    annotations = meta.get("annotations") or {}
    worker = template["workerTemplate"]
    leader = template.get("leaderTemplate") or worker
    more = tuple(_group_unknowns(template, annotations))
    demands = [_with_unknowns(read_demand(t.get("spec") or {}), more) for t in (leader, worker)]
    size = int(template.get("size", 1))
    pods = (demands[0], *([demands[1]] * (size - 1)))
    labels = dict((leader.get("metadata") or {}).get("labels") or {})
    return tuple(
        Group(
            role=role["name"],
            index=index,
            namespace=namespace,
            pods=pods,
            labels=labels,
            exclusive=annotations.get(EXCLUSIVE),
            leader_first=spec.get("startupPolicy") == "LeaderReady",
            priority=priority,
            preempts=(leader.get("spec") or {}).get("preemptionPolicy") != "Never",
        )
        for index in range(first, first + how_many)
    )


def read_demand(spec: Object) -> Demand:
    """What a pod spec or the spec of a pod template asks of a node, and what of it is not modelled."""
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    requests = pod_requests(spec)
    requests["pods"] = 1
    for port in _host_ports(spec):
        requests[port] = 1
    return Demand(
        requests=tuple(sorted((name, value) for name, value in requests.items() if value)),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        node_terms=None
        if required is None
        else tuple(map(_node_term, required.get("nodeSelectorTerms") or ())),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
        limits=tuple(sorted(pod_requests(spec, kind="limits").items())),
        unknowns=tuple(_pod_unknowns(spec)),
    )


def pod_requests(spec: Object, *, kind: str = "requests") -> dict[str, int]:
    """Requests (or limits) of a whole pod by resource: containers add up, init containers set a minimum.

    Rules of component-helpers PodRequests: a sidecar (init container with restartPolicy Always) counts with
    the containers and under every later init container; pod-level cpu and memory replace the sum; overhead
    is added. A missing request takes the limit, as the API server defaults it.
    """
    total = _added({}, *(_container(c, kind) for c in spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _container(container, kind)
        if container.get("restartPolicy") == "Always":
            total = _added(total, asked)
            sidecars = _added(sidecars, asked)
            asked = sidecars
        else:
            asked = _added(asked, sidecars)
        peak = {name: max(peak.get(name, 0), asked.get(name, 0)) for name in {*peak, *asked}}
    total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {*total, *peak}}
    for name, value in ((spec.get("resources") or {}).get(kind) or {}).items():
        total[name] = count(name, value)
    return _added(total, {name: count(name, value) for name, value in (spec.get("overhead") or {}).items()})


def _container(container: Object, kind: str) -> dict[str, int]:
    resources = container.get("resources") or {}
    listed = dict(resources.get("limits") or {}) if kind == "requests" else {}
    listed.update(resources.get(kind) or {})
    return {name: count(name, value) for name, value in listed.items()}


def _added(*parts: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _bare(quota_name: str) -> str:
    """`requests.cpu` and `limits.cpu` count cores as `cpu` does."""
    return quota_name.split(".", 1)[1] if quota_name.startswith(("requests.", "limits.")) else quota_name


def _requirement(expression: Object) -> Requirement:
    return Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))


def _node_term(term: Object) -> NodeTerm:
    return NodeTerm(
        expressions=tuple(map(_requirement, term.get("matchExpressions") or ())),
        fields=tuple(map(_requirement, term.get("matchFields") or ())),
    )


def _toleration(toleration: Object) -> Toleration:
    return Toleration(
        key=toleration.get("key") or "",
        operator=toleration.get("operator") or "Equal",
        value=toleration.get("value") or "",
        effect=toleration.get("effect") or "",
    )


def _host_ports(spec: Object) -> Iterable[str]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                yield f"{HOST_PORT}{port.get('protocol') or 'TCP'}:{number}"


def _terms(spec: Object, kind: str) -> Sequence[Object]:
    affinity = (spec.get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()


def _is_group_term(term: Object) -> bool:
    """Terms that LeaderWorkerSet's webhook adds for exclusive topology; the annotation already says so."""
    selector = term.get("labelSelector") or {}
    keys = {e["key"] for e in selector.get("matchExpressions") or ()} | set(selector.get("matchLabels") or {})
    return keys == {GROUP_KEY}


def _anti_affinity(spec: Object, namespace: str) -> Iterable[AntiAffinity]:
    for term in _terms(spec, "podAntiAffinity"):
        if _is_group_term(term):
            continue
        selector = term.get("labelSelector") or {}
        requirements = [Requirement(k, "In", (v,)) for k, v in (selector.get("matchLabels") or {}).items()]
        requirements += map(_requirement, selector.get("matchExpressions") or ())
        listed = frozenset(term.get("namespaces") or (namespace,))
        yield AntiAffinity(tuple(requirements), None if "namespaceSelector" in term else listed)


def _pod_unknowns(spec: Object) -> Iterable[Unknown]:
    own = [
        t for kind in ("podAffinity", "podAntiAffinity") for t in _terms(spec, kind) if not _is_group_term(t)
    ]
    if own:
        yield Unknown("inter-pod-affinity", "Required affinity to other pods is not modelled.")
    spread = spec.get("topologySpreadConstraints") or ()
    if any(s.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for s in spread):
        yield Unknown("topology-spread", "A topology spread constraint that refuses nodes is not modelled.")
    if spec.get("resourceClaims"):
        yield Unknown("resource-claims", "Devices asked for through resource claims are not counted.")
    if any("persistentVolumeClaim" in v or "ephemeral" in v for v in spec.get("volumes") or ()):
        yield Unknown("volumes", "Where its persistent volumes can be reached is not modelled.")
    if spec.get("runtimeClassName"):
        yield Unknown("runtime-class", "A runtime class may add a node selector and overhead.")
    if spec.get("schedulingGates"):
        yield Unknown("scheduling-gates", "It waits for somebody to remove its scheduling gates.")
    if (spec.get("schedulerName") or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
        name = spec["schedulerName"]
        yield Unknown("other-scheduler", f"Scheduler {name} decides by rules of its own.", restricts=False)


def _group_unknowns(template: Object, annotations: Object) -> Iterable[Unknown]:
    if template.get("volumeClaimTemplates"):
        yield Unknown("volumes", "Where its persistent volumes can be reached is not modelled.")
    if SUBGROUP_EXCLUSIVE in annotations:
        yield Unknown("subgroup-exclusive", "Exclusive placement of subgroups is not modelled.")


def _with_unknowns(demand: Demand, more: tuple[Unknown, ...]) -> Demand:
    known = {unknown.code for unknown in demand.unknowns}
    added = tuple(unknown for unknown in more if unknown.code not in known)
    return Demand(
        requests=demand.requests,
        node_selector=demand.node_selector,
        node_terms=demand.node_terms,
        tolerations=demand.tolerations,
        limits=demand.limits,
        unknowns=(*demand.unknowns, *added),
    )
