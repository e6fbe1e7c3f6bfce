"""What a restore adds to the start of the engines themselves. Prints one JSON object.

    python tests/bench/restore.py [--restores 3] [--prefill 4] [--decode 2] [--start 5]

The control plane and the DisaggregatedSet controller are real, and so are web request, workers, beat and the watch
process, with production's times, except that engines have to stay ready for a second only (30 s by default). Two ways:

* `anew`, after an upgrade that has succeeded: the recorded engines take `--start` seconds to become ready. What is
  counted is the time from the request to the end, less the time in which engines were starting.
* `back`, in the middle of an upgrade: no engine has to start, so all of the time is counted.

DESIGN names no limit; a restore that does not succeed fails the run. Needs the rig's programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.rig import NodePool, Rig, workloads
from tests.bench.alone import prepare
from tests.bench.promote import SET, Bench, installation

if TYPE_CHECKING:
    from controlplane.operations.models import Operation
    from controlplane.recovery.models import Combination

Json = dict[str, Any]
QUICK: Json = {"holds": [], "stable_for": 0}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restores", type=int, default=3)
    parser.add_argument("--prefill", type=int, default=4)
    parser.add_argument("--decode", type=int, default=2)
    parser.add_argument("--start", type=int, default=5, help="seconds until an engine is ready")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        rig = stack.enter_context(Rig(nodes=NodePool(count=12)))
        prepare(stack, folder, LOCKSTEP_KUBECONFIG=str(rig.kubeconfig("lockstep")), LOCKSTEP_STABLE_FOR="1")
        bench = stack.enter_context(installation(folder, rig))
        result = measure(bench, asked)
    print(json.dumps(result, indent=2))
    return 0


def measure(bench: Bench, asked: argparse.Namespace) -> Json:
    """Make the set, take it away from its combination and back so many times each way, and sum up."""
    from tests.cluster.restoring import capture

    lockstep, client = bench.lockstep, bench.lockstep.rig.client()
    image = f"registry.example/engine:v1-late-{asked.start}s"
    roles = [workloads.role(name, getattr(asked, name), image=image) for name in ("prefill", "decode")]
    client.create(workloads.disaggregated_set(SET, bench.namespace, roles))
    workloads.wait_settled(client, bench.namespace, SET)
    found = capture(lockstep, bench.namespace, SET)
    ways: dict[str, list[Json]] = {"anew": [], "back": []}
    for number in range(asked.restores):
        new = f"registry.example/engine:v{number + 2}"
        upgrade = lockstep.upgrade(bench.namespace, SET, image=new, **QUICK)
        ended(bench, upgrade)
        ways["anew"].append(restored(bench, found))
        upgrade = lockstep.upgrade(
            bench.namespace, SET, image=new, holds=["first-complete-row"], promote="manual", stable_for=0
        )
        bench.stands(upgrade)
        ways["back"].append(restored(bench, found))
    return {
        "benchmark": "restore",
        "groups": {"prefill": asked.prefill, "decode": asked.decode},
        "engines_start_s": asked.start,
        **{way: summed_up(runs) for way, runs in ways.items()},
        "passed": True,
    }


def summed_up(runs: list[Json]) -> Json:
    """Medians and the most, of the whole time and of what a restore adds."""
    overhead = [each["overhead_s"] for each in runs]
    return {
        "restores": len(runs),
        "whole_p50_s": round(statistics.median(each["whole_s"] for each in runs), 2),
        "overhead_p50_s": round(statistics.median(overhead), 2),
        "overhead_most_s": round(max(overhead), 2),
        "steps_s": runs[-1]["steps_s"],
    }


def restored(bench: Bench, found: Combination) -> Json:
    """One restore, timed from the request to the end."""
    from controlplane.operations.models import Operation
    from tests.cluster.restoring import restore

    began = time.time()
    operation = Operation.objects.get(pk=restore(bench.lockstep, found).operation_id)
    ended(bench, operation)
    whole = time.time() - began
    resume(bench)
    return {
        "whole_s": whole,
        "overhead_s": whole - starting(bench, since=began),
        "steps_s": {
            step.name: round((step.done_at - step.first_claimed_at).total_seconds(), 2)
            for step in operation.steps.order_by("index")
            if step.done_at and step.first_claimed_at
        },
    }


def resume(bench: Bench) -> None:
    """Let automation change the set again, as a person does after a restore."""
    lockstep = bench.lockstep
    pauses = lockstep.operator.get("/api/v1/automation-pauses").json()["results"]
    newest = max(pauses, key=lambda pause: int(pause["id"]))
    path, body = f"automation-pauses/{newest['id']}/resume", {"reason": "the next one"}
    said = lockstep.post(lockstep.operator, path, body, version=newest.get("version", 1))
    assert said.status_code == 200, said.json()


def ended(bench: Bench, operation: Operation) -> None:
    """Wait until the operation has succeeded."""

    def look() -> bool:
        operation.refresh_from_db()
        assert operation.state != "held", operation.finding
        return operation.finished_at is not None

    bench.wait_for(look, seconds=180, what=f"the end of {operation}")
    assert operation.state == "succeeded", bench.lockstep.story()


def starting(bench: Bench, *, since: float) -> float:
    """Seconds from the first of the pods made since then to the last one ready; 0 where none was made."""
    pods = workloads.pods_of(bench.lockstep.rig.client(), bench.namespace, f"{workloads.NAME_LABEL}={SET}")
    made = [(moment(pod["metadata"]["creationTimestamp"]), pod) for pod in pods]
    new = [(at, pod) for at, pod in made if at >= since - 1]
    if not new:
        return 0.0
    ready = [
        moment(each["lastTransitionTime"])
        for _, pod in new
        for each in pod["status"]["conditions"]
        if each["type"] == "Ready" and each["status"] == "True"
    ]
    return max(ready) - min(at for at, _ in new)


def moment(text: str) -> float:
    """A Kubernetes time as seconds."""
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    sys.exit(main())
