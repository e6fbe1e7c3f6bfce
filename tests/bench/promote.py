"""From a promote to the next row's counts, as an observer of the cluster sees them. Prints one JSON object.

    python tests/bench/promote.py [--upgrades 3] [--prefill 4] [--decode 2]

The control plane and the DisaggregatedSet controller are real, and so are web request, workers, beat and the
watch process, with production's times. Every row is a hold. Engines start at once (KWOK), so what is measured
is Lockstep and the controller. Needs the rig's programs. Exits 1 when the 95th percentile is 2 s or more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.rig import NodePool, Rig, workloads
from tests.bench.alone import prepare

if TYPE_CHECKING:
    from controlplane.operations.models import Operation
    from tests.chaos.upgrade.history import History
    from tests.chaos.upgrade.wave import Manned

ROOT = Path(__file__).resolve().parents[2]
LIMIT_P95_S = 2.0
SET = "model"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrades", type=int, default=3)
    parser.add_argument("--prefill", type=int, default=4)
    parser.add_argument("--decode", type=int, default=2)
    size = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        rig = stack.enter_context(Rig(nodes=NodePool(count=12)))
        prepare(stack, folder, LOCKSTEP_KUBECONFIG=str(rig.kubeconfig("lockstep")))
        result = stack.enter_context(installation(folder, rig)).measure(size)
    print(json.dumps(result, indent=2))
    return 0 if result["passed"] else 1


@contextlib.contextmanager
def installation(folder: Path, rig: Rig) -> Iterator[Bench]:
    """Lockstep's processes beside the rig, and a set."""
    from tests.chaos.engine.processes import Crew, wait_for
    from tests.chaos.upgrade.history import history_of
    from tests.chaos.upgrade.wave import Manned
    from tests.cluster.driving import install_target

    install_target(rig)
    lockstep = Manned(rig, environment="development")
    client = rig.client()
    namespace = workloads.make_namespace(client, "bench")
    crew = Crew({**os.environ, "LOCKSTEP_LOG_LEVEL": "INFO"}, folder, "workers.app")
    try:
        crew.add_worker(children=2)
        crew.start_beat()
        crew.start_watch()
        crew.wait_until_up()
        lockstep.crewed = True
        with history_of(rig.kubeconfig("admin"), namespace) as history:
            yield Bench(lockstep, history, namespace, wait_for)
    finally:
        crew.end()


@dataclass
class Bench:
    """Upgrades whose every row is promoted by hand."""

    lockstep: Manned
    history: History
    namespace: str
    wait_for: Callable[..., float]
    seconds: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)

    def measure(self, size: argparse.Namespace) -> dict[str, Any]:
        """Make the set, upgrade it so many times, and sum up."""
        client = self.lockstep.rig.client()
        roles = [workloads.role("prefill", size.prefill), workloads.role("decode", size.decode)]
        client.create(workloads.disaggregated_set(SET, self.namespace, roles))
        workloads.wait_settled(client, self.namespace, SET)
        for number in range(size.upgrades):
            self.upgrade(image=f"registry.example/engine:v{number + 2}")
        found = sorted(self.seconds)
        p95 = found[min(len(found) - 1, int(0.95 * len(found)))]
        return {
            "benchmark": "promote",
            "groups": {"prefill": size.prefill, "decode": size.decode},
            "promotes": len(found),
            "p50_s": round(statistics.median(found), 3),
            "p95_s": round(p95, 3),
            "most_s": round(found[-1], 3),
            "answer_p50_s": round(statistics.median(self.answered), 3),
            "limit_p95_s": LIMIT_P95_S,
            "passed": p95 < LIMIT_P95_S,
        }

    def upgrade(self, *, image: str) -> None:
        """One upgrade through all its holds."""
        options = {"holds": ["every-row"], "promote": "manual", "stable_for": 0}
        operation = self.lockstep.upgrade(self.namespace, SET, image=image, **options)
        while self.stands(operation):
            self.promote(operation)
        assert operation.state == "succeeded", self.lockstep.story()

    def stands(self, operation: Operation) -> bool:
        """Wait for the next hold, or the end; whether it is a hold."""

        def look() -> bool:
            operation.refresh_from_db()
            assert operation.state != "held", operation.finding
            return bool(operation.waits_for.get("hold_key")) or operation.finished_at is not None

        self.wait_for(look, seconds=60, what="the next hold")
        return operation.finished_at is None

    def promote(self, operation: Operation) -> None:
        """Promote, and wait until the cluster shows the next row."""
        memory, row = operation.memory, int(operation.waits_for["hold_key"].rpartition("-")[2])
        if row + 1 == len(memory["rows"]):
            self.lockstep.let_go(operation)
            return
        old, new, _ = memory["rows"][row + 1]
        wanted = {(memory["old"], role): count for role, count in zip(memory["roles"], old, strict=True)}
        wanted |= {(memory["new"], role): count for role, count in zip(memory["roles"], new, strict=True)}
        begun = time.time()
        self.lockstep.let_go(operation)
        self.answered.append(time.time() - begun)
        self.wait_for(lambda: self.at(wanted) is not None, seconds=30, what=f"row {row + 1}")
        reached = self.at(wanted)
        assert reached is not None
        self.seconds.append(reached - begun)

    def at(self, wanted: dict[tuple[str, str], int]) -> float | None:
        """Since when the counts are so, by the observer's own watch; None where they are not."""
        from tests.chaos.upgrade.history import CHILDREN

        counts: dict[tuple[str, str], int] = {}
        since = None
        for written in self.history.writes(lambda written: written.kind == CHILDREN):
            labels = written.body["metadata"]["labels"]
            key = (labels[workloads.REVISION_LABEL], labels[workloads.ROLE_LABEL])
            counts[key] = 0 if written.event == "DELETED" else int(written.body["spec"]["replicas"])
            if all(counts.get(key, 0) == count for key, count in wanted.items()):
                since = since or written.at
            else:
                since = None
        return since


if __name__ == "__main__":
    sys.exit(main())
