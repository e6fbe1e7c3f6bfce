"""How long it takes to say whether a row fits 1,000 nodes with 10,000 pods. Prints one JSON object.

    python tests/bench/fit.py

Exits 1 when reading the objects or the slowest verdict needs 2 s or more.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.topology.facts import EXCLUSIVE, GROUP_KEY, Cluster, Group
from policy.topology.fit import fit
from policy.topology.quantity import parse_quantity
from policy.topology.reading import read_groups, read_node, read_pod

LIMIT_S = 2.0
REPEATS = 3
NODES = 1_000
PODS = 10_000
GPU = "nvidia.com/gpu"
CLIQUE = "nvidia.com/gpu.clique"
CLIQUE_SIZE = 8


def node(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"gpu-{number}",
            "labels": {
                "kubernetes.io/hostname": f"gpu-{number}",
                CLIQUE: f"c{number // CLIQUE_SIZE}",
                "pool": f"p{number % 3}",
            },
        },
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "191500m", "memory": "2063Gi", GPU: "16", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(number: int) -> dict[str, Any]:
    """Ten pods a node, one GPU each; the last quarter of the nodes belongs to another namespace."""
    on = number % NODES
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "serving" if on < NODES * 3 // 4 else "other",
            "labels": {GROUP_KEY: f"g{number // 4}"} if on < NODES // 2 else {},
        },
        "spec": {"nodeName": f"gpu-{on}", **engine(1)},
        "status": {"phase": "Running"},
    }


def engine(gpus: int, *, cpu: str = "7500m") -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": "64Gi", GPU: str(gpus)}
    return {
        "containers": [{"name": "engine", "resources": {"requests": asked, "limits": asked}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }


def role(name: str, gpus: int, *, size: int = 1, exclusive: bool = False, pool: str = "") -> dict[str, Any]:
    spec = engine(gpus)
    if pool:
        spec["nodeSelector"] = {"pool": pool}
    return {
        "name": name,
        "metadata": {"annotations": {EXCLUSIVE: CLIQUE} if exclusive else {}},
        "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": spec}}},
    }


def groups(count: int, *roles: Mapping[str, Any]) -> list[Group]:
    return [group for each in roles for group in read_groups(each, namespace="serving", how_many=count)]


def cases() -> Mapping[str, Sequence[Group]]:
    return {
        "40_groups_of_4_fit": groups(40, role("prefill", 4, size=4)),
        "1_000_groups_fill_it": groups(1_000, role("decode", 6)),
        "1_001st_does_not_fit": groups(1_001, role("decode", 6)),
        "two_sizes": groups(100, role("prefill", 4, size=2), role("decode", 2)),
        "three_sizes_short": groups(400, role("a", 4), role("b", 3), role("c", 2, size=3)),
        "60_exclusive_groups": groups(60, role("prefill", 6, size=8, exclusive=True)),
        "70_exclusive_groups_short": groups(70, role("prefill", 6, size=8, exclusive=True)),
        "exclusive_beside_others": groups(
            20, role("prefill", 6, size=8, exclusive=True), role("decode", 2, pool="p1")
        ),
    }


def seconds(call: Callable[[], object]) -> float:
    """Median of several runs."""
    spent = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return round(statistics.median(spent), 3)


def read() -> Cluster:
    parse_quantity.cache_clear()
    found = (read_pod(pod(number)) for number in range(PODS))
    return Cluster(
        nodes=tuple(read_node(node(number)) for number in range(NODES)),
        pods=tuple(each for each in found if each is not None),
    )


def measure(cluster: Cluster, row: Sequence[Group]) -> dict[str, Any]:
    verdict = fit(cluster, row)
    return {
        "groups": len(row),
        "pods": sum(len(group.pods) for group in row),
        "verdict": verdict.kind,
        "pending": verdict.pending,
        "exact": verdict.exact,
        "fit_s": seconds(lambda: fit(cluster, row)),
    }


def main() -> int:
    cluster = read()
    results = {name: measure(cluster, row) for name, row in cases().items()}
    reading = seconds(read)
    slowest = max(result["fit_s"] for result in results.values())
    passed = slowest < LIMIT_S and reading < LIMIT_S
    report = {
        "benchmark": "fit",
        "nodes": NODES,
        "pods": PODS,
        "read_s": reading,
        "cases": results,
        "slowest_fit_s": slowest,
        "limit_s": LIMIT_S,
        "passed": passed,
    }
    print(json.dumps(report, indent=2))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
