"""Probes per second through Envoy, router and engines, sent as a series sends them. Prints one JSON object.

    python tests/bench/probes.py [--seconds 20] [--at-once 8]

The control plane, the gateway (Envoy), the router and the engines are the rig's; requests are pinned completions of
Lockstep's own client with the fixed prompts, on the listener for probes, as many at once as a series has. Engines
answer fifty times faster than their hardware would. Needs the rig's programs. Exits 1 when fewer are answered per
second than the highest rate that a pool may set, or one is not answered with 200 by the revision that it asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import PROBE_HEADER, ServedPath, router_program
from deploy.rig import NodePool, Rig, workloads
from policy.probes import fixed_prompts, fresh_salts, salt_prompt

if TYPE_CHECKING:
    from controlplane.paths.requests import Reply

LEAST_PER_S = 50.0  # controlplane.paths.pool_settings: the highest rate of a pool
REVISION = "x-disagg-revision"
TOKENS = 16  # controlplane.paths.asks.PROBE_TOKENS


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--at-once", type=int, default=8)
    asked = parser.parse_args()
    os.environ |= {
        "LOCKSTEP_SECRET_KEY": "bench-" + "x" * 50,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=NodePool(count=12), programs=[router_program()], path_crds=True))
        namespace = workloads.make_namespace(rig.client(), "bench")
        served = stack.enter_context(ServedPath(rig, namespace))
        label = served.serve("chat", engine_pair())
        result = Sender(served, label).run(seconds=asked.seconds, at_once=asked.at_once)
    print(json.dumps(result, indent=2))
    return 0 if result["passed"] else 1


@dataclass
class Sender:
    """Sends pinned completions until the time is over."""

    served: ServedPath
    label: str
    replies: list[Reply] = field(default_factory=list)

    def run(self, *, seconds: float, at_once: int) -> dict[str, Any]:
        """A second to warm up, then measure."""
        from controlplane.paths.requests import Line

        line = Line(self.served.probe_url, headers={PROBE_HEADER: self.served.secret})
        salts, lock = fresh_salts(seed=1), threading.Lock()
        prompts = itertools.cycle(fixed_prompts())

        def send(ends: float) -> None:
            while time.monotonic() < ends:
                with lock:
                    prompt, salt = next(prompts), next(salts)
                body = {
                    "model": "lockstep-demo/tiny",
                    "prompt": salt_prompt(prompt, salt),
                    "max_tokens": TOKENS,
                }
                reply = line.complete({**body, "temperature": 0}, headers={REVISION: self.label})
                with lock:
                    self.replies.append(reply)

        for length in (1.0, seconds):
            self.replies.clear()
            begun = time.monotonic()
            with ThreadPoolExecutor(at_once) as senders:
                list(senders.map(send, [begun + length] * at_once))
            took = time.monotonic() - begun
        line.close()
        return self.summed_up(took, at_once)

    def summed_up(self, took: float, at_once: int) -> dict[str, Any]:
        """The numbers."""
        good = [
            each.seconds
            for each in self.replies
            if each.status == 200 and each.headers.get(REVISION) == self.label
        ]
        times = sorted(good) or [float("nan")]
        per_second = len(good) / took
        return {
            "benchmark": "probes",
            "at_once": at_once,
            "seconds": round(took, 1),
            "answered": len(good),
            "not_answered": len(self.replies) - len(good),
            "per_s": round(per_second, 1),
            "p50_ms": round(1000 * statistics.median(times), 1),
            "p95_ms": round(1000 * times[min(len(times) - 1, int(0.95 * len(times)))], 1),
            "least_per_s": LEAST_PER_S,
            "passed": per_second >= LEAST_PER_S and len(good) == len(self.replies),
        }


if __name__ == "__main__":
    sys.exit(main())
