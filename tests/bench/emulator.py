"""The emulator with 5,000 pods, over HTTP and TLS: how long lists, writes and watch events take. Prints one JSON
object.

    python tests/bench/emulator.py [--pods 5000]

Client and server share a machine but no process. Exits 1 when a number of LIMITS is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from deploy.demo.emulator import Emulator
from deploy.rig import NodePool, workloads
from deploy.rig.api import STRATEGIC, Api

Doc = dict[str, Any]
NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CHANGES = 300
TRIES = 5
LIMITS = {
    "list_s": 1.0,
    "server_cpu_s_per_list": 0.3,
    "paged_list_s": 1.5,
    "watch_p50_ms": 20.0,
    "watch_p95_ms": 60.0,
}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    number = parser.parse_args().pods
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder, running(Path(folder)) as process:
        file = Path(folder) / "trust" / "kubeconfig" / "admin.yaml"
        client, watcher = Api(file), Api(file)
        result: Doc = {"pods": number, **fill(client, number)}
        result |= lists(client, psutil.Process(process.pid), number)
        result |= watch(client, watcher, number)
        result["rss_mb"] = round(psutil.Process(process.pid).memory_info().rss / 1e6, 1)
    missed = {name: limit for name, limit in LIMITS.items() if result[name] > limit}
    print(json.dumps(result | {"limits": LIMITS, "missed": sorted(missed)}, indent=2))
    return 1 if missed else 0


@contextmanager
def running(folder: Path) -> Iterator[Any]:
    """An emulator in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready, ended = context.Event(), context.Event()
    process = context.Process(target=serve, args=(folder, ready, ended), daemon=True)
    process.start()
    try:
        if not ready.wait(60):
            raise SystemExit("the emulator did not start")
        yield process
    finally:
        ended.set()
        process.join(10)
        process.kill()


def serve(folder: Path, ready: Any, ended: Any) -> None:
    """The process."""
    with Emulator(folder=folder, nodes=NodePool(count=100, pods=110)):
        ready.set()
        ended.wait()


def fill(client: Api, number: int) -> Doc:
    """Create pods of engines, on nodes."""
    workloads.make_namespace(client, NAMESPACE)
    begun = time.monotonic()
    for index in range(number):
        client.create(pod(index))
    spent = time.monotonic() - begun
    return {"create_s": round(spent, 2), "creates_per_s": round(number / spent)}


def pod(index: int) -> Doc:
    """A leader pod as LeaderWorkerSet makes it."""
    labels = {
        workloads.NAME_LABEL: f"set-{index // 10:04d}",
        workloads.ROLE_LABEL: "prefill" if index % 3 else "decode",
        workloads.REVISION_LABEL: "aaaa1111",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    container = {
        "name": "engine",
        "image": "registry.example/engine:v1",
        "args": ["--tensor-parallel-size=2", "--max-model-len=8192"],
        "env": [{"name": f"SETTING_{each}", "value": str(each)} for each in range(8)],
        "ports": [{"containerPort": 8000, "name": "modelserver"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "8", "memory": "64Gi"}},
    }
    metadata = {"name": f"pod-{index:05d}", "namespace": NAMESPACE, "labels": labels}
    spec = {"nodeName": f"gpu-{index % 100}", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def lists(client: Api, server: psutil.Process, number: int) -> Doc:
    """All pods at once, by a selector, and in pages, parsed by the client: the best of some, as others use the
    machine too. The first list of all is left out: it encodes them."""
    assert len(client.items(PODS)) == number
    busy = server.cpu_times()
    result = {
        "list_s": best(lambda: len(client.items(PODS)) == number),
        "paged_list_s": best(lambda: paged(client) == number),
        "selected_list_s": best(
            lambda: len(client.items(PODS, selector=f"{workloads.NAME_LABEL}=set-0007")) == 10
        ),
    }
    used = server.cpu_times()
    spent = used.user + used.system - busy.user - busy.system
    return {**result, "server_cpu_s_per_list": round(spent / (2 * TRIES), 3)}


def best(call: Callable[[], bool]) -> float:
    """The shortest time of some calls in seconds."""
    times = []
    for _ in range(TRIES):
        begun = time.monotonic()
        assert call()
        times.append(time.monotonic() - begun)
    return round(min(times), 3)


def paged(client: Api) -> int:
    """How many pods the pages of 500 have."""
    seen, query = 0, {"limit": "500"}
    while True:
        answer = client.request("GET", PODS, query=query)
        seen += len(answer["items"])
        if not answer["metadata"].get("continue"):
            return seen
        query["continue"] = answer["metadata"]["continue"]


def watch(client: Api, watcher: Api, number: int) -> Doc:
    """From the answer of a write, or before it, to its event at a watcher; and how many writes a second pass."""
    version = client.request("GET", PODS, query={"limit": "1"})["metadata"]["resourceVersion"]
    events: queue.Queue[tuple[str, float]] = queue.Queue()

    def follow() -> None:
        for event in watcher.watch(PODS, version=version, limit_s=120):
            name = event["object"]["metadata"].get("name", "")
            events.put((name, time.monotonic()))
            if name == "pod-00000" and event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    time.sleep(0.5)
    lags, begun = [], time.monotonic()
    for index in range(CHANGES):
        name = f"pod-{index * 7 % number:05d}"
        sent = time.monotonic()
        condition = {"type": "Ready", "status": str(index % 2 == 0), "reason": f"r{index}"}
        body = {"status": {"conditions": [condition]}}
        client.patch(f"{PODS}/{name}/status", body, content_type=STRATEGIC)
        seen, at = events.get(timeout=10)
        assert seen == name
        lags.append((at - sent) * 1000)
    spent = time.monotonic() - begun
    client.request("DELETE", f"{PODS}/pod-00000", {"gracePeriodSeconds": 0})
    thread.join(10)
    ordered = sorted(lags)
    return {
        "patches_per_s": round(CHANGES / spent),
        "watch_p50_ms": round(statistics.median(ordered), 2),
        "watch_p95_ms": round(ordered[int(len(ordered) * 0.95) - 1], 2),
        "watch_max_ms": round(ordered[-1], 2),
    }


if __name__ == "__main__":
    sys.exit(main())
