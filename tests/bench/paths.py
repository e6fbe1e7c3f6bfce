"""The read model of request paths for a large fleet: from objects to rows. Prints one JSON object.

    python tests/bench/paths.py [--pools 500] [--pods 20]

Objects are synthetic (a router, a guarded route and `--pods` engine pods for each pool, all in one namespace, which is
the worst case for every join); derivation and writes are the product's, on a PostgreSQL of its own. Measured are the
first round, a round in which nothing changed, and one in which every pool did. Exits 1 when a number of LIMITS is
missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.alone import prepare

if TYPE_CHECKING:
    from controlplane.paths.objects import PathObjects

OLD, NEW = "aaaaaaaa", "bbbbbbbb"
# A round has half of LOCKSTEP_PATHS_EVERY, the rest belongs to the metric source; a quiet one writes no pool.
LIMITS = {
    "first_s": 4.0,
    "quiet_s": 1.5,
    "busy_s": 4.0,
    "quiet_queries": 8.0,
    "busy_queries": 12.0,
    "quiet_written": 0.0,
}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=500)
    parser.add_argument("--pods", type=int, default=20)
    size = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        prepare(stack, folder)
        result = measure(size.pools, size.pods)
    missed = sorted(name for name, limit in LIMITS.items() if result[name] > limit)
    print(json.dumps(result | {"limits": LIMITS, "missed": missed}, indent=2))
    return 1 if missed else 0


def measure(pools: int, pods: int) -> dict[str, Any]:
    """Three rounds over the same pools."""
    from tests.controlplane.operations.toy import make_cluster

    cluster = make_cluster(watcher_fence=1)
    still, moved = fleet(pools, pods, new=1), fleet(pools, pods, new=2)
    result: dict[str, Any] = {"benchmark": "paths", "pools": pools, "pods": pools * pods}
    for name, seen in (("first", still), ("quiet", still), ("busy", moved)):
        result |= {f"{name}_{key}": value for key, value in one_round(cluster.pk, seen).items()}
    return result


def one_round(cluster_id: int, seen: PathObjects) -> dict[str, float]:
    """Derive every path and store what changed: seconds, queries, rows written."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from controlplane.paths.services import record_pools, seen_pools
    from controlplane.paths.view import derive_paths

    begun = time.monotonic()
    paths = derive_paths(seen)
    derived = time.monotonic()
    with CaptureQueriesContext(connection) as queries:
        written = record_pools(cluster_id=cluster_id, fence=1, seen=seen_pools(paths))
    ended = time.monotonic()
    return {
        "s": round(ended - begun, 3),
        "derive_s": round(derived - begun, 3),
        "queries": len(queries),
        "written": float(written if written is not None else -1),
    }


def fleet(pools: int, pods: int, *, new: int) -> PathObjects:
    """Pools in the middle of a rollout, `new` groups of each role of each set being of the new revision."""
    from tests.controlplane.paths.world import engines, objects

    names = [f"model-{number:04d}" for number in range(pools)]
    decode = pods // 3
    found = []
    for name in names:
        counts = {("prefill", OLD): pods - decode - new, ("decode", OLD): decode - new}
        counts |= {("prefill", NEW): new, ("decode", NEW): new}
        found += engines(name, counts)
    return objects(*names, pods=found)


if __name__ == "__main__":
    sys.exit(main())
