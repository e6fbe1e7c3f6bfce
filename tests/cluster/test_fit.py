"""Fit against the real scheduler and the real LeaderWorkerSet controller, on generated clusters.

Each case has nodes and a namespace of its own; a taint keeps everybody else away, so that cases run side by side.
Verdicts come from the objects that the API server holds before the groups are created.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from deploy.rig import Rig, until, workloads
from policy.topology.facts import EXCLUSIVE, Cluster, Group
from policy.topology.fit import Verdict, fit
from policy.topology.reading import read_groups, read_node, read_pod, read_quota

pytestmark = pytest.mark.rig

Doc = dict[str, Any]
GPU = "nvidia.com/gpu"
CASE = "lockstep.dev/fit-case"
DOMAIN = "lockstep.dev/fit-domain"
POOL = "lockstep.dev/fit-pool"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass
class Case:
    """Documents of one generated cluster and of the sets that come into it."""

    name: str
    nodes: list[Doc] = field(default_factory=list)
    before: list[Doc] = field(default_factory=list)
    sets: list[Doc] = field(default_factory=list)
    verdict: Verdict | None = None

    @property
    def places(self) -> list[dict[str, str]]:
        return [{"key": CASE, "value": self.name, "effect": "NoSchedule"}]


def make_node(case: Case, gpus: int, *, pods: int = 110, labels: Doc | None = None, taint: str = "") -> None:
    name = f"{case.name}-{len(case.nodes)}"
    size = {"cpu": "64", "memory": "512Gi", "pods": str(pods), GPU: str(gpus)}
    taints = [*case.places, *([{"key": taint, "effect": "NoSchedule"}] if taint else [])]
    case.nodes.append(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, CASE: case.name, **(labels or {})},
            },
            "spec": {"taints": taints},
            "status": {"capacity": size, "allocatable": size},
        }
    )


def pod_spec(case: Case, gpus: int, *, pool: str = "", tolerate: str = "") -> Doc:
    tolerations: list[Doc] = [{"key": CASE, "operator": "Exists"}]
    if tolerate:
        tolerations.append({"key": tolerate, "operator": "Exists"})
    limits = {GPU: str(gpus)} if gpus else {}
    return {
        "containers": [{"name": "engine", "image": "registry.example/e:1", "resources": {"limits": limits}}],
        "nodeSelector": {CASE: case.name, **({POOL: pool} if pool else {})},
        "tolerations": tolerations,
    }


def make_pod(case: Case, gpus: int, node: str | None) -> None:
    """A pod that was there before: on a node, or waiting because it fits none."""
    spec = pod_spec(case, gpus)
    if node:
        spec["nodeName"] = node
    meta = {"name": f"before-{len(case.before)}", "namespace": case.name}
    case.before.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def make_set(
    case: Case, replicas: int, *, size: int, worker: Doc, leader: Doc | None = None, exclusive: bool = False
) -> None:
    template: Doc = {"size": size, "workerTemplate": {"spec": worker}}
    if leader is not None:
        template["leaderTemplate"] = {"spec": leader}
    case.sets.append(
        {
            "apiVersion": workloads.LWS_GROUP,
            "kind": "LeaderWorkerSet",
            "metadata": {
                "name": f"role{len(case.sets)}",
                "namespace": case.name,
                "annotations": {EXCLUSIVE: DOMAIN} if exclusive else {},
            },
            "spec": {"replicas": replicas, "leaderWorkerTemplate": template},
        }
    )


def plain(rng: random.Random, case: Case) -> None:
    """Pods of one or two sizes on nodes of several, some partly taken, short of pod places or cordoned."""
    for _ in range(rng.randint(3, 7)):
        make_node(case, rng.choice([2, 4, 8, 8]), pods=rng.choice([2, 110, 110]))
    case.nodes[0]["spec"]["unschedulable"] = rng.random() < 0.4
    for node in case.nodes[1:]:
        if rng.random() < 0.3:
            make_pod(case, rng.choice([1, 2]), node["metadata"]["name"])
    if rng.random() < 0.5:
        make_pod(case, 64, None)
    for _ in range(rng.randint(1, 2)):
        make_set(
            case,
            rng.randint(1, 5),
            size=rng.randint(1, 3),
            worker=pod_spec(case, rng.choice([2, 4, 8])),
        )


def picky(rng: random.Random, case: Case) -> None:
    """Pools by node selector and by taint; the two sets may overlap on some nodes."""
    for _ in range(rng.randint(4, 8)):
        make_node(
            case,
            rng.choice([4, 8]),
            labels={POOL: rng.choice("ab")},
            taint=rng.choice(["", "", "lockstep.dev/reserved"]),
        )
    for pool in rng.sample(["a", "b", ""], 2):
        make_set(
            case,
            rng.randint(1, 5),
            size=rng.randint(1, 2),
            worker=pod_spec(case, 4, pool=pool, tolerate=rng.choice(["", "lockstep.dev/reserved"])),
        )


def exclusive(rng: random.Random, case: Case) -> None:
    """Domains of several sizes; one or two exclusive sets, sometimes a leader without devices."""
    for domain in range(rng.randint(2, 5)):
        for _ in range(rng.choice([1, 2, 2])):
            make_node(case, rng.choice([4, 8, 8]), labels={DOMAIN: f"d{domain}"})
    make_node(case, 8)
    for _ in range(rng.choice([1, 1, 2])):
        leader = pod_spec(case, 0) if rng.random() < 0.3 else None
        make_set(
            case,
            rng.randint(1, 4),
            size=rng.randint(1, 3),
            worker=pod_spec(case, rng.choice([4, 4, 8])),
            leader=leader,
            exclusive=True,
        )


def mixed(rng: random.Random, case: Case) -> None:
    """An exclusive set and an ordinary one of the same namespace, where each keeps the other out."""
    for domain in range(rng.randint(3, 6)):
        for _ in range(2):
            make_node(case, 8, labels={DOMAIN: f"d{domain}"})
    make_set(case, rng.randint(1, 3), size=2, worker=pod_spec(case, 8), exclusive=True)
    make_set(case, rng.randint(1, 3), size=1, worker=pod_spec(case, 8))


def limited(rng: random.Random, case: Case) -> None:
    """Room enough, but a quota on pods or devices."""
    for _ in range(6):
        make_node(case, 8)
    hard = rng.choice([{"pods": str(rng.randint(2, 9))}, {f"requests.{GPU}": str(rng.randint(6, 36))}])
    case.before.append(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "limit", "namespace": case.name},
            "spec": {"hard": hard},
        }
    )
    make_set(case, rng.randint(2, 4), size=2, worker=pod_spec(case, 4))


Family = Callable[[random.Random, Case], None]


def generate(family: Family, count: int, seed: int) -> list[Case]:
    cases = []
    for number in range(count):
        case = Case(f"fit-{family.__name__}-{seed + number}")
        family(random.Random(f"{family.__name__} {seed + number}"), case)
        cases.append(case)
    return cases


def begin(rig: Rig, case: Case) -> None:
    """Nodes and what stands on them; the verdict is taken from what the API server then holds."""
    client = rig.client()
    workloads.make_namespace(client, case.name)
    for doc in (*case.nodes, *case.before):
        client.create(doc)
    until(f"{case.name} is furnished", lambda: furnished(rig, case))
    nodes = client.items("/api/v1/nodes", selector=f"{CASE}={case.name}")
    pods = client.items(f"/api/v1/namespaces/{case.name}/pods")
    quotas = client.items(f"/api/v1/namespaces/{case.name}/resourcequotas")
    cluster = Cluster(
        nodes=tuple(map(read_node, nodes)),
        pods=tuple(pod for pod in map(read_pod, pods) if pod is not None),
        quotas=tuple(map(read_quota, quotas)),
    )
    case.verdict = fit(cluster, groups_of(case))


def groups_of(case: Case) -> list[Group]:
    found: list[Group] = []
    for doc in case.sets:
        role = {"name": doc["metadata"]["name"], "metadata": doc["metadata"], "spec": doc["spec"]}
        found += read_groups(role, namespace=case.name, how_many=doc["spec"]["replicas"])
    return found


def furnished(rig: Rig, case: Case) -> bool:
    """Nodes are ready with only their own taints, pods from before are looked at, the quota is counted."""
    client = rig.client()
    nodes = client.items("/api/v1/nodes", selector=f"{CASE}={case.name}")
    wanted = {node["metadata"]["name"]: len(node["spec"]["taints"]) for node in case.nodes}
    for node in nodes:
        cordon = 1 if node["spec"].get("unschedulable") else 0
        taints = len(node["spec"].get("taints") or ())
        if not workloads.is_ready(node) or taints != wanted[node["metadata"]["name"]] + cordon:
            return False
    pods = client.items(f"/api/v1/namespaces/{case.name}/pods")
    quotas = client.items(f"/api/v1/namespaces/{case.name}/resourcequotas")
    return all(pod["spec"].get("nodeName") or judged(pod) for pod in pods) and all(
        quota.get("status", {}).get("hard") for quota in quotas
    )


def condition(pod: Doc, kind: str) -> Doc | None:
    return next((c for c in pod.get("status", {}).get("conditions") or () if c["type"] == kind), None)


def judged(pod: Doc) -> bool:
    """The scheduler has bound the pod or said that it cannot."""
    found = condition(pod, "PodScheduled")
    return found is not None and (found["status"] == "True" or found.get("reason") == "Unschedulable")


def scheduled(pod: Doc) -> bool:
    found = condition(pod, "PodScheduled")
    return found is not None and found["status"] == "True"


def settled(rig: Rig, case: Case) -> list[Doc] | None:
    """All pods of the case once none is to come and all are judged; None before."""
    client = rig.client()
    pods = client.items(f"/api/v1/namespaces/{case.name}/pods")
    if not all(judged(pod) for pod in pods if not pod["metadata"]["name"].startswith("before-")):
        return None
    quotas = client.items(f"/api/v1/namespaces/{case.name}/resourcequotas")
    if any(exhausted(quota, case) for quota in quotas):
        return pods
    for doc in case.sets:
        size, replicas = doc["spec"]["leaderWorkerTemplate"]["size"], doc["spec"]["replicas"]
        mine = [
            pod for pod in pods if pod["metadata"].get("labels", {}).get(SET_NAME) == doc["metadata"]["name"]
        ]
        leaders = [pod for pod in mine if pod["metadata"]["labels"][WORKER_INDEX] == "0"]
        led = [pod for pod in leaders if scheduled(pod) or EXCLUSIVE not in doc["metadata"]["annotations"]]
        if len(leaders) < replicas or len(mine) < replicas + len(led) * (size - 1):
            return None
    return pods


def wait_settled(rig: Rig, case: Case) -> list[Doc]:
    pods = until(f"{case.name} has settled", lambda: settled(rig, case), limit_s=90)
    assert pods is not None
    return pods


def exhausted(quota: Doc, case: Case) -> bool:
    """Nothing more can be created: one more pod would exceed the quota as the API server counts it."""
    status = quota.get("status", {})
    asked = case.sets[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    step = {"pods": 1, f"requests.{GPU}": int(asked["resources"]["limits"].get(GPU, 0))}
    return any(
        int(status.get("used", {}).get(name, 0)) + step[name] > int(hard)
        for name, hard in status.get("hard", {}).items()
    )


def compare(case: Case, pods: list[Doc]) -> None:
    verdict = case.verdict
    assert verdict is not None
    ours = [pod for pod in pods if not pod["metadata"]["name"].startswith("before-")]
    wanted = sum(len(group.pods) for group in groups_of(case))
    placed = sum(1 for pod in ours if scheduled(pod))
    pending = sum(1 for pod in pods if not scheduled(pod) and not pod["spec"].get("nodeName"))
    seen = f"{case.name}: {verdict.sentence} but {placed} of {wanted} placed, {pending} pending"
    if verdict.kind == "fits":
        assert placed == wanted, seen
    if verdict.kind == "does_not_fit":
        assert placed < wanted, seen
    if verdict.exact:
        assert pending == verdict.pending, seen
        assert wanted - len(ours) == verdict.uncreated, seen


@pytest.fixture
def clean(rig: Rig) -> Iterator[list[Case]]:
    """Cases put in here are taken away after the test."""
    cases: list[Case] = []
    yield cases
    client = rig.client()
    for case in cases:
        client.delete(f"/api/v1/namespaces/{case.name}")
        for node in case.nodes:
            client.delete(f"/api/v1/nodes/{node['metadata']['name']}")


@pytest.mark.parametrize(
    ("family", "count", "certain"),
    [(plain, 8, 6), (picky, 6, 4), (exclusive, 8, 5), (mixed, 6, 2), (limited, 4, 4)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_verdicts_agree_with_the_scheduler(
    rig: Rig, clean: list[Case], family: Family, count: int, certain: int
) -> None:
    cases = generate(family, count, seed=1)
    clean += cases
    for case in cases:
        begin(rig, case)
    for case in cases:
        for doc in case.sets:
            rig.client().create(doc)
    for case in cases:
        compare(case, wait_settled(rig, case))
    kinds = [case.verdict.kind for case in cases if case.verdict is not None]
    assert len(kinds) - kinds.count("estimate") >= certain, kinds


@pytest.mark.parametrize("spare", [0, 1])
def test_the_peak_row_of_a_rollout(rig: Rig, clean: list[Case], spare: int) -> None:
    """A set that fills its nodes rolls with surge 1: the new prefill group and decode group need a node each."""
    case = Case(f"fit-peak-{spare}")
    clean.append(case)
    for _ in range(3 + 2 * spare):
        make_node(case, 8)
    client = rig.client()
    begin(rig, case)
    roles = [
        workloads.role("prefill", 2, gpus=8, pod=on_case(case)),
        workloads.role("decode", 1, gpus=8, pod=on_case(case)),
    ]
    stored = workloads.disaggregated_set("model", case.name, roles)
    client.create(stored)
    workloads.wait_settled(client, case.name, "model")
    nodes = client.items("/api/v1/nodes", selector=f"{CASE}={case.name}")
    pods = client.items(f"/api/v1/namespaces/{case.name}/pods")
    cluster = Cluster(
        tuple(map(read_node, nodes)), tuple(pod for pod in map(read_pod, pods) if pod is not None)
    )
    added = [group for role in roles for group in read_groups(role, namespace=case.name, how_many=1)]
    verdict = fit(cluster, added)
    assert verdict.kind == ("fits" if spare else "does_not_fit")
    changed = [
        workloads.role("prefill", 2, gpus=8, pod=on_case(case), args=["--v2"]),
        workloads.role("decode", 1, gpus=8, pod=on_case(case)),
    ]
    client.patch(workloads.set_path(case.name, "model"), {"spec": {"roles": changed}})
    if spare:
        until("two revisions", lambda: len(revisions(client, case)) == 2)
        workloads.wait_settled(client, case.name, "model")
    else:
        assert verdict.exact
        until("the new groups wait", lambda: len(waiting(client, case)) == verdict.pending)


def on_case(case: Case) -> Doc:
    spec = pod_spec(case, 8)
    return {"nodeSelector": spec["nodeSelector"], "tolerations": spec["tolerations"]}


def revisions(client: Any, case: Case) -> set[str]:
    sets = workloads.lws_of(client, case.name, "model")
    return {one["metadata"]["labels"][workloads.REVISION_LABEL] for one in sets}


def waiting(client: Any, case: Case) -> list[Doc]:
    pods = client.items(f"/api/v1/namespaces/{case.name}/pods")
    return [pod for pod in pods if judged(pod) and not scheduled(pod)]
