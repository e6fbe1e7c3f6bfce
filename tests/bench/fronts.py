"""Requests through the gateway, served by Envoy and by the small proxy beside it. Prints one JSON object.

    python tests/bench/fronts.py [--requests 400] [--seconds 5] [--at-once 8]

One pool with one engine and one router, both the gateway tests' own, in this process; the gateway is a process of its
own and asks the router about each request. Added times are against the same request sent to the engine itself, one
after the other on one connection; requests per second are of several connections at once, and count what this process
needs as client, router and engine: with either front they are a floor. Exits 1 when a front carries fewer per second
than the highest rate of probes that a pool may set, or one request is not answered with 200.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.demo.gateway.front import packaged_envoy
from tests.demo.gateway.running import Gateway, Scene, staged, until

LEAST_PER_S = 50.0  # controlplane.paths.pool_settings: the highest rate of a pool
BODY = json.dumps({"model": "m", "prompt": "word " * 200}).encode()
WARM = 50
Ask = Callable[[], bool]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--at-once", type=int, default=8)
    asked = parser.parse_args()
    fronts = ["envoy", "proxy"] if packaged_envoy() else ["proxy"]
    found = {front: measured(front, asked) for front in fronts}
    passed = all(each["per_s"] >= LEAST_PER_S and not each["not_answered"] for each in found.values())
    print(
        json.dumps({"benchmark": "fronts", "least_per_s": LEAST_PER_S, **found, "passed": passed}, indent=2)
    )
    return 0 if passed else 1


def measured(front: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The numbers of one front."""
    with (
        staged(front) as scene,
        tempfile.TemporaryDirectory() as folder,
        running(scene, Path(folder)) as gateway,
    ):
        pool, engine, _ = scene.served()
        path = scene.route({pool: 1})
        until("the route is served", lambda: gateway.serves(path))
        direct = times(asker(engine.ip, 8000, path), asked.requests)
        before = processor_s(gateway)
        through = times(asker(gateway.address, gateway.port, path), asked.requests)
        spent = processor_s(gateway) - before
        answered, lost = at_once(lambda: asker(gateway.address, gateway.port, path), asked)
        return {
            "per_s": round(answered / asked.seconds, 1),
            "at_once": asked.at_once,
            "not_answered": lost + asked.requests - len(through),
            "p50_ms": at(through, 0.5),
            "p95_ms": at(through, 0.95),
            "cpu_ms": round(1000 * spent / (asked.requests + WARM), 2),
            "added_p50_ms": round(at(through, 0.5) - at(direct, 0.5), 2),
            "added_p95_ms": round(at(through, 0.95) - at(direct, 0.95), 2),
        }


@contextmanager
def running(scene: Scene, folder: Path) -> Iterator[Gateway]:
    """A ready gateway."""
    gateway = Gateway(scene.api, scene.stage, folder, front=scene.front)
    try:
        yield gateway.wait_ready()
    finally:
        gateway.stop()


def processor_s(gateway: Gateway) -> float:
    """Seconds of processor time that the gateway has used, with its Envoy."""
    first = psutil.Process(gateway.process.pid)
    used = [each.cpu_times() for each in (first, *first.children())]
    return sum(each.user + each.system for each in used)


def asker(address: str, port: int, path: str) -> Ask:
    """Sends one request after the other on one connection; each says whether it was answered."""
    client = http.client.HTTPConnection(address, port, timeout=10)

    def ask() -> bool:
        client.request("POST", path, body=BODY, headers={"content-type": "application/json"})
        answer = client.getresponse()
        answer.read()
        return answer.status == 200

    return ask


def times(ask: Ask, count: int) -> list[float]:
    """Seconds of those that were answered, sorted; some before them warm up."""
    for _ in range(WARM):
        ask()
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        if ask():
            found.append(time.perf_counter() - begun)
    return sorted(found)


def at_once(make: Callable[[], Ask], asked: argparse.Namespace) -> tuple[int, int]:
    """Requests that were answered and that were not, of several connections for some seconds."""
    ends = time.monotonic() + asked.seconds

    def send(_: int) -> tuple[int, int]:
        ask, good, bad = make(), 0, 0
        while time.monotonic() < ends:
            if ask():
                good += 1
            else:
                bad += 1
        return good, bad

    with ThreadPoolExecutor(asked.at_once) as senders:
        counts = list(senders.map(send, range(asked.at_once)))
    return sum(good for good, _ in counts), sum(bad for _, bad in counts)


def at(times: list[float], share: float) -> float:
    """A quantile in milliseconds."""
    return round(1000 * statistics.quantiles(times, n=100)[round(share * 100) - 1], 2)


if __name__ == "__main__":
    sys.exit(main())
