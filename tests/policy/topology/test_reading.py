"""Facts out of Kubernetes objects: what a pod asks for, and what about it stays unknown."""

from __future__ import annotations

from typing import Any

import pytest

from policy.topology.reading import pod_requests, read_demand, read_groups, read_node, read_pod, read_quota
from policy.topology.selectors import NodeTerm, Requirement, Taint, Toleration, first_untolerated

GPU = "nvidia.com/gpu"
GROUP = "leaderworkerset.sigs.k8s.io/group-key"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def container(cpu: str | None = None, gpu: str | None = None, **more: Any) -> dict[str, Any]:
    requests = {name: value for name, value in (("cpu", cpu), (GPU, gpu)) if value}
    return {"name": "c", "resources": {"requests": requests}, **more}


def test_containers_add_up_and_limits_stand_in_for_requests() -> None:
    spec = {
        "containers": [container("500m", "4"), {"name": "x", "resources": {"limits": {"cpu": "1", GPU: "4"}}}]
    }
    assert pod_requests(spec) == {"cpu": 1500, GPU: 8}
    assert pod_requests(spec, kind="limits") == {"cpu": 1000, GPU: 4}


def test_init_containers_set_a_minimum_and_sidecars_add() -> None:
    spec = {
        "initContainers": [
            container("2"),
            container("300m", restartPolicy="Always"),
            container("3"),
            container("100m", restartPolicy="Always"),
        ],
        "containers": [container("1")],
    }
    assert pod_requests(spec) == {"cpu": 3300}
    spec["containers"] = [container("3")]
    assert pod_requests(spec) == {"cpu": 3400}


def test_pod_level_resources_and_overhead() -> None:
    spec = {
        "containers": [container("1", "1")],
        "resources": {"requests": {"cpu": "5"}},
        "overhead": {"cpu": "250m", "memory": "64Mi"},
    }
    assert pod_requests(spec) == {"cpu": 5250, GPU: 1, "memory": 64 * 2**20}


def test_host_ports_are_places_too() -> None:
    ports = [{"containerPort": 8000}, {"containerPort": 9, "hostPort": 19, "protocol": "UDP"}]
    asked = dict(read_demand({"containers": [container(ports=ports)]}).requests)
    assert asked == {"pods": 1, "host-port:UDP:19": 1}
    asked = dict(read_demand({"hostNetwork": True, "containers": [container(ports=ports)]}).requests)
    assert asked == {"pods": 1, "host-port:TCP:8000": 1, "host-port:UDP:19": 1}


def group_affinity(key: str) -> dict[str, Any]:
    expression = {"key": GROUP, "operator": "In", "values": ["k"]}
    term = {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def other_affinity(**more: Any) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname", **more}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"affinity": {"podAffinity": other_affinity()}}, "inter-pod-affinity"),
        ({"affinity": {"podAntiAffinity": other_affinity()}}, "inter-pod-affinity"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topology-spread"),
        ({"resourceClaims": [{"name": "gpus"}]}, "resource-claims"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "volumes"),
        ({"runtimeClassName": "nvidia"}, "runtime-class"),
        ({"schedulingGates": [{"name": "kueue"}]}, "scheduling-gates"),
        ({"schedulerName": "kai-scheduler"}, "other-scheduler"),
    ],
)
def test_what_is_not_modelled_is_said(spec: dict[str, Any], code: str) -> None:
    assert [unknown.code for unknown in read_demand(spec).unknowns] == [code]


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": group_affinity("zone"), "podAntiAffinity": group_affinity("zone")}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"schedulerName": "default-scheduler", "volumes": [{"name": "v", "emptyDir": {}}]},
    ],
)
def test_what_is_modelled_or_only_a_wish_is_no_unknown(spec: dict[str, Any]) -> None:
    assert read_demand(spec).unknowns == ()


def test_a_node() -> None:
    node = read_node(
        {
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "64", "memory": "1Gi", GPU: "8", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    assert node.allocatable == {"cpu": 64_000, "memory": 2**30, GPU: 8, "pods": 110}
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert (node.unschedulable, node.ready) == (True, False)


def pod(**more: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "ns", **more.pop("metadata", {})}
    return {"metadata": meta, "spec": {"containers": [container("1")], **more.pop("spec", {})}, **more}


def test_finished_pods_hold_nothing() -> None:
    assert read_pod(pod(status={"phase": "Succeeded"})) is None
    assert read_pod(pod(status={"phase": "Failed"})) is None
    pending = read_pod(pod(status={"phase": "Pending"}))
    assert pending is not None and pending.node is None


def test_exclusive_topology_is_read_from_group_pods_only() -> None:
    annotated = {"annotations": {EXCLUSIVE: "zone"}}
    alone = read_pod(pod(metadata=annotated))
    grouped = read_pod(pod(metadata={**annotated, "labels": {GROUP: "k"}}))
    assert alone is not None and alone.exclusive is None
    assert grouped is not None and grouped.exclusive == "zone"


def test_repelling_terms_leave_out_those_of_exclusive_topology() -> None:
    found = read_pod(pod(spec={"affinity": {"podAntiAffinity": group_affinity("zone")}}))
    assert found is not None and found.repels == ()
    found = read_pod(pod(spec={"affinity": {"podAntiAffinity": other_affinity(namespaces=["a"])}}))
    assert found is not None
    assert found.repels[0].selector == (Requirement("app", "In", ("x",)),)
    assert found.repels[0].namespaces == frozenset({"a"})
    found = read_pod(pod(spec={"affinity": {"podAntiAffinity": other_affinity(namespaceSelector={})}}))
    assert found is not None and found.repels[0].namespaces is None


def test_a_quota_counts_in_the_same_units() -> None:
    quota = read_quota(
        {
            "metadata": {"name": "q", "namespace": "ns"},
            "spec": {"hard": {"requests.cpu": "4"}, "scopes": ["NotTerminating"]},
            "status": {
                "hard": {"requests.cpu": "4", "requests.nvidia.com/gpu": "8", "pods": "10"},
                "used": {"requests.cpu": "500m"},
            },
        }
    )
    assert quota.hard == {"requests.cpu": 4000, "requests.nvidia.com/gpu": 8, "pods": 10}
    assert quota.used == {"requests.cpu": 500}
    assert quota.scopes == ("NotTerminating",)


ROLE: dict[str, Any] = {
    "name": "prefill",
    "metadata": {"annotations": {EXCLUSIVE: "nvidia.com/gpu.clique"}},
    "spec": {
        "replicas": 4,
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {
            "size": 3,
            "leaderTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container("1")]}},
            "workerTemplate": {"spec": {"containers": [container("2", "8")], "preemptionPolicy": "Never"}},
        },
    },
}


def test_groups_of_a_role() -> None:
    groups = read_groups(ROLE, namespace="ns", how_many=2, first=4)
    assert [group.name for group in groups] == ["prefill group 4", "prefill group 5"]
    group = groups[0]
    assert [dict(demand.requests).get(GPU, 0) for demand in group.pods] == [0, 8, 8]
    assert (group.exclusive, group.leader_first, group.preempts) == ("nvidia.com/gpu.clique", True, True)
    assert group.labels == {"a": "b"}


def test_a_role_without_a_leader_template_starts_leaders_as_workers() -> None:
    template = {k: v for k, v in ROLE["spec"]["leaderWorkerTemplate"].items() if k != "leaderTemplate"}
    role = {"name": "decode", "spec": {"leaderWorkerTemplate": {**template, "volumeClaimTemplates": [{}]}}}
    (group,) = read_groups(role, namespace="ns", how_many=1)
    assert len(set(group.pods)) == 1 and len(group.pods) == 3
    assert not group.preempts
    assert [unknown.code for unknown in group.pods[0].unknowns] == ["volumes"]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "holds"),
    [
        ("In", ("a", "b"), {"k": "b"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"k": "b"}, True),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("NotIn", ("a",), {}, True),
        ("Exists", (), {"k": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"k": ""}, False),
        ("Gt", ("5",), {"k": "6"}, True),
        ("Gt", ("5",), {"k": "5"}, False),
        ("Gt", ("5",), {"k": "x"}, False),
        ("Gt", ("5",), {}, False),
        ("Lt", ("5",), {"k": "-1"}, True),
        ("Near", ("5",), {"k": "5"}, False),
    ],
)
def test_requirements(operator: str, values: tuple[str, ...], labels: dict[str, str], holds: bool) -> None:
    assert Requirement("k", operator, values).matches(labels) is holds


def test_node_terms() -> None:
    assert not NodeTerm(()).matches("n", {"k": "v"})
    by_name = NodeTerm((), (Requirement("metadata.name", "In", ("n",)),))
    assert by_name.matches("n", {}) and not by_name.matches("m", {})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Equal", "v", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("k", "Gt", "v"), False),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    taint = Taint("k", "v", "NoSchedule")
    assert (first_untolerated([taint], [toleration]) is None) is tolerated
    assert first_untolerated([Taint("k", "v", "PreferNoSchedule")], []) is None
