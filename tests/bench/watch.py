"""The watch process over a cluster of 10,000 pods on KWOK: memory, lag, database writes. Prints one JSON
object.

    python tests/bench/watch.py [--pods 10000] [--sets 500] [--nodes 200]

The API server, its store and KWOK are real; sets and LeaderWorkerSets are written by this script in place
of their manager, so that only the watch is measured. Needs the rig's programs. Exits 1 when a number of
LIMITS is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
import psycopg
import yaml

from deploy import services
from deploy.rig import NodePool, Rig, workloads
from deploy.rig.api import STRATEGIC, Api

Doc = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "bench"
CHURN_PER_S = 50
CHURN_S = 30.0
IDLE_S = 20.0
PROBES = 20
LIMITS = {"lag_p95_s": 2.0, "idle_writes_per_s": 1.0, "rss_mb": 400.0}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=200)
    size = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        environment = {
            **os.environ,
            "LOCKSTEP_SECRET_KEY": "bench-" + "x" * 50,
            "LOCKSTEP_LOG_LEVEL": "WARNING",
            "DATABASE_URL": stack.enter_context(services.start_postgres(folder)),
            "LOCKSTEP_BROKER_URL": stack.enter_context(services.start_valkey(folder)),
        }
        pool = NodePool(count=size.nodes, pods=2 * size.pods // size.nodes + 50)
        rig = stack.enter_context(Rig(nodes=pool, run_lws=False))
        environment["LOCKSTEP_KUBECONFIG"] = str(rig.kubeconfig("lockstep"))
        context = yaml.safe_load(rig.kubeconfig("lockstep").read_text())["current-context"]
        manifests = ROOT / "deploy" / "target"
        for path in (manifests / "namespace.yaml", *sorted(manifests.glob("*.yaml"))):
            if path.stem != "scrape":
                rig.apply(path.read_text())
        database = stack.enter_context(make_database(environment, context))
        filled = fill(rig.client(), sets=size.sets, pods=size.pods, nodes=size.nodes)
        result = {"pods": size.pods, "sets": size.sets, "nodes": size.nodes, "fill_s": filled}
        result |= measure(rig, database, environment, size.sets)
    missed = {name: limit for name, limit in LIMITS.items() if result[name] > limit}
    print(json.dumps(result | {"limits": LIMITS, "missed": sorted(missed)}, indent=2))
    return 1 if missed else 0


@contextlib.contextmanager
def make_database(environment: dict[str, str], context: str) -> Iterator[psycopg.Connection[Any]]:
    """Migrate, register the cluster, and give a connection of our own."""
    manage = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*manage, "migrate", "-v0"], env=environment, check=True, cwd=ROOT)
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as database:
        database.execute(
            "INSERT INTO fleet_cluster (name, context, environment, writes, writes_reason, lease_transitions,"
            " lws_version, kubernetes_version, watcher_fence, problem, metrics_url, metrics_options, version,"
            " created_at, updated_at)"
            " VALUES ('bench', %s, 'staging', 'unknown', '', 0, '', '', 0, '', '', '{}', 1, now(), now())",
            [context],
        )
        yield database


def fill(client: Api, *, sets: int, pods: int, nodes: int) -> float:
    """Create sets of two roles and their pods; returns the seconds it took."""
    started = time.monotonic()
    workloads.make_namespace(client, NAMESPACE)
    groups = pods // sets
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda number: make_set(client, number, groups, nodes), range(sets)))
    wait_until("all pods ready", lambda: count_ready(client) >= sets * groups, limit=900)
    return round(time.monotonic() - started, 1)


def make_set(client: Api, number: int, groups: int, nodes: int) -> None:
    """One set with its LeaderWorkerSets and pods, as the manager would have made them."""
    prefill = groups * 2 // 3
    roles = [workloads.role("prefill", prefill), workloads.role("decode", groups - prefill)]
    name = f"set-{number:04d}"
    stored = client.create(workloads.disaggregated_set(name, NAMESPACE, roles))
    for role in stored["spec"]["roles"]:
        child = client.create(child_of(stored, role))
        size = role["spec"]["replicas"]
        status = {"replicas": size, "readyReplicas": size, "updatedReplicas": size, "observedGeneration": 1}
        path = (
            f"/apis/{workloads.LWS_GROUP}/namespaces/{NAMESPACE}/leaderworkersets/{child['metadata']['name']}"
        )
        client.patch(f"{path}/status", {"status": status})
        for group in range(size):
            client.create(pod_of(child, group, node=f"gpu-{(number * groups + group) % nodes}"))


def child_of(stored: Doc, role: Doc) -> Doc:
    """The LeaderWorkerSet of a role."""
    name = stored["metadata"]["name"]
    labels = {
        workloads.NAME_LABEL: name,
        workloads.REVISION_LABEL: "aaaa1111",
        workloads.ROLE_LABEL: role["name"],
    }
    spec = json.loads(json.dumps(role["spec"]))
    spec["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = {"labels": labels}
    owner = {
        "apiVersion": stored["apiVersion"],
        "kind": stored["kind"],
        "name": name,
        "uid": stored["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": f"{name}-aaaa1111-{role['name']}", "namespace": NAMESPACE, "labels": labels}
    return {
        "apiVersion": workloads.LWS_GROUP,
        "kind": "LeaderWorkerSet",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": spec,
    }


def pod_of(child: Doc, group: int, *, node: str) -> Doc:
    """A leader pod, placed already: the scheduler is not measured here."""
    template = child["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {
        **child["metadata"]["labels"],
        "leaderworkerset.sigs.k8s.io/name": child["metadata"]["name"],
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    containers = [{"name": each["name"], "image": each["image"]} for each in template["spec"]["containers"]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{child['metadata']['name']}-{group}",
            "namespace": NAMESPACE,
            "labels": labels,
        },
        "spec": {"nodeName": node, "containers": containers},
    }


def measure(rig: Rig, database: psycopg.Connection[Any], environment: dict[str, str], sets: int) -> Doc:
    """Start the watch process, then look at it idle and while pods flicker."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "workers.watch"], env=environment, cwd=ROOT)
    try:
        watched = psutil.Process(process.pid)
        wait_until("every set is in the database", lambda: settled(database) == sets, limit=300)
        result: Doc = {"first_picture_s": round(time.monotonic() - started, 1)}
        # Roles go on record after they have been seen for some seconds.
        wait_until("revisions are on record", lambda: recorded(database) == sets, limit=120)
        before, cpu, began = writes(database), watched.cpu_times(), time.monotonic()
        time.sleep(IDLE_S)
        after, spent = writes(database), time.monotonic() - began
        result["idle_writes"] = rates(before, after, spent)
        result["idle_writes_per_s"] = round(sum(result["idle_writes"].values()), 2)
        result["idle_cpu_percent"] = round((busy(watched) - busy_of(cpu)) / spent * 100, 1)
        result |= churn(rig.client(), database, watched)
        result["rss_mb"] = round(watched.memory_info().rss / 1e6, 1)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        process.wait(20)
        result["stop_s"] = round(time.monotonic() - began, 2)
        return result
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def churn(client: Api, database: psycopg.Connection[Any], watched: psutil.Process) -> Doc:
    """Flip the readiness of random pods, and time how long a probed one takes from its write to its row."""
    pods = client.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    probed = [pod for pod in pods if pod["metadata"]["labels"][workloads.NAME_LABEL] == "set-0000"]
    others = [pod for pod in pods if pod["metadata"]["labels"][workloads.NAME_LABEL] != "set-0000"]
    stop = threading.Event()
    flips = 0

    def flicker(seed: int) -> None:
        nonlocal flips
        choose = random.Random(seed)
        while not stop.is_set():
            began = time.monotonic()
            flip(client, choose.choice(others), ready=choose.random() < 0.5)
            flips += 1
            stop.wait(max(0.0, 4 / CHURN_PER_S - (time.monotonic() - began)))

    threads = [threading.Thread(target=flicker, args=[seed], daemon=True) for seed in range(4)]
    before, cpu, started = writes(database), watched.cpu_times(), time.monotonic()
    for each in threads:
        each.start()
    lags = []
    for number in range(PROBES):
        ready = number % 2 == 1
        expected = len(probed) - (0 if ready else 1)
        flip(client, probed[0], ready=ready)
        written = time.monotonic()
        wait_until("the probe's row", lambda expected=expected: ready_groups(database) == expected, limit=60)
        lags.append(time.monotonic() - written)
        time.sleep(max(0.0, CHURN_S / PROBES - lags[-1]))
    spent, used = time.monotonic() - started, busy(watched) - busy_of(cpu)
    stop.set()
    for each in threads:
        each.join(10)
    moved = rates(before, writes(database), spent)
    ordered = sorted(lags)
    return {
        "churn_flips_per_s": round(flips / spent, 1),
        "churn_writes": moved,
        "churn_writes_per_s": round(sum(moved.values()), 1),
        "churn_cpu_percent": round(used / spent * 100, 1),
        "lag_median_s": round(statistics.median(ordered), 3),
        "lag_p95_s": round(ordered[int(len(ordered) * 0.95) - 1], 3),
        "lag_max_s": round(ordered[-1], 3),
    }


def flip(client: Api, pod: Doc, *, ready: bool) -> None:
    """Write a pod's readiness as a kubelet would."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": stamp}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
    client.patch(path, {"status": {"conditions": [condition]}}, content_type=STRATEGIC)


def writes(database: psycopg.Connection[Any]) -> dict[str, int]:
    """Rows inserted, updated or deleted so far, by table."""
    time.sleep(11)  # PostgreSQL holds the counts of an idle session back for up to 10 s
    query = "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables"
    return {str(table): int(rows) for table, rows in database.execute(query)}


def rates(before: dict[str, int], after: dict[str, int], seconds: float) -> dict[str, float]:
    """Writes per second of each table that had any."""
    moved = {table: rows - before.get(table, 0) for table, rows in after.items()}
    return {table: round(rows / seconds, 2) for table, rows in sorted(moved.items()) if rows}


def settled(database: psycopg.Connection[Any]) -> int:
    """Sets that the database calls settled."""
    return count(database, "SELECT count(*) FROM fleet_workload WHERE state = 'settled'")


def recorded(database: psycopg.Connection[Any]) -> int:
    """Revisions whose roles are on record."""
    return count(database, "SELECT count(*) FROM fleet_revision WHERE roles IS NOT NULL")


def ready_groups(database: psycopg.Connection[Any]) -> int:
    """Ready groups of the probed set as its row shows them."""
    query = "SELECT headline FROM fleet_workload WHERE name = 'set-0000'"
    row = database.execute(query).fetchone()
    return sum(role["ready"] for role in row[0]["roles"]) if row else -1


def count(database: psycopg.Connection[Any], query: str) -> int:
    """One number."""
    row = database.execute(query).fetchone()
    return int(row[0]) if row else 0


def count_ready(client: Api) -> int:
    """Ready pods; a look at all of them, so not too often."""
    time.sleep(2)
    return sum(1 for pod in client.items(f"/api/v1/namespaces/{NAMESPACE}/pods") if workloads.is_ready(pod))


def busy(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    return busy_of(process.cpu_times())


def busy_of(times: Any) -> float:
    """User and system time."""
    return float(times.user + times.system)


def wait_until(what: str, look: Callable[[], bool], *, limit: float) -> None:
    """Poll until it holds."""
    end = time.monotonic() + limit
    while not look():
        if time.monotonic() > end:
            raise SystemExit(f"not within {limit:.0f} s: {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
