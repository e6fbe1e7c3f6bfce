"""What the demo's metric source costs: two hundred targets, scraped every second. Prints one JSON object.

    python tests/bench/metrics.py [--targets 200] [--seconds 30] [--busy 0.25]

Pages are those of the demo's engines, served by another process; a share of them (`--busy`) counts a request every
second, so that about as many of their lines change as on an engine with traffic. Measured are the processor time of the
source, how many of the scrapes that were due were made, its memory, and how long questions over all targets take.
Exits 1 when it takes more than half a core, misses scrapes, grows beyond its bound, or a question takes longer than a
second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import resource
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

MOST_CORES = 0.5
MOST_ASKED_S = 1.0
LEAST_SCRAPED = 0.98
MOST_MB = 600.0
QUESTIONS = {
    "ttft p95": "histogram_quantile(0.95, sum by (le, role) (increase(vllm:time_to_first_token_seconds_bucket[20s])))",
    "errors": (
        'sum by (role) (increase(vllm:request_success_total{finished_reason="error"}[20s]))'
        " / (sum by (role) (increase(vllm:request_success_total[20s])) > 0)"
    ),
    "exact counts": (
        "sum by (le, role) ((((max_over_time(vllm:time_to_first_token_seconds_bucket[20s]) - "
        "min_over_time(vllm:time_to_first_token_seconds_bucket[20s])) and "
        "(resets(vllm:time_to_first_token_seconds_bucket[20s]) == 0)) or "
        "(increase(vllm:time_to_first_token_seconds_bucket[20s]) and "
        "(resets(vllm:time_to_first_token_seconds_bucket[20s]) > 0))))"
    ),
    "names": (
        'count by (metric, role) (label_replace({__name__=~"vllm:num_requests_running|vllm:request_success_total"}, '
        '"metric", "$1", "__name__", "(.+)"))'
    ),
    "freshness": "time() - max by (role, pod) (timestamp(vllm:num_requests_running))",
}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--busy", type=float, default=0.25)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    engines = context.Process(target=serve_engines, args=(theirs, asked.targets, asked.busy), daemon=True)
    engines.start()
    try:
        result = measure(mine.recv(), asked.targets, asked.seconds)
    finally:
        engines.terminate()
        engines.join(10)
    print(json.dumps({"benchmark": "metrics", "busy": asked.busy, **result}, indent=2))
    return 0 if result["passed"] else 1


def measure(ports: list[int], targets: int, seconds: float) -> dict[str, Any]:
    """Five seconds to warm up, then count."""
    from deploy.demo.metrics.server import MetricSource

    jobs = [
        {
            "job_name": "engines",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{port}"],
                    "labels": {"pod": f"p{number}", "role": ("prefill", "decode")[number % 2], "set": "chat"},
                }
                for number, port in enumerate(ports)
            ],
        }
    ]
    with MetricSource(jobs) as source:
        time.sleep(5.0)
        began, used = time.monotonic(), processor_s()
        time.sleep(seconds)
        cores = (processor_s() - used) / (time.monotonic() - began)
        window = math.floor(seconds)
        scraped = ask(source.url, f"sum(count_over_time(up[{window}s]))")[0]
        up, samples = ask(source.url, "sum(up)")[0], ask(source.url, "sum(scrape_samples_scraped)")[0]
        took = {
            name: statistics.median(ask(source.url, text)[1] for _ in range(5))
            for name, text in QUESTIONS.items()
        }
        stored = source.store.stored()
    share = scraped / (targets * window)
    memory = psutil.Process().memory_info().rss / 2**20
    return {
        "targets": targets,
        "up": up,
        "samples_per_s": samples,
        "changes_stored": stored,
        "cores": round(cores, 3),
        "scraped_of_due": round(share, 3),
        "memory_mb": round(memory, 1),
        "asked_ms": {name: round(1000 * one, 1) for name, one in took.items()},
        "most": {"cores": MOST_CORES, "asked_ms": 1000 * MOST_ASKED_S, "memory_mb": MOST_MB},
        "passed": cores <= MOST_CORES
        and up == targets
        and share >= LEAST_SCRAPED
        and memory <= MOST_MB
        and max(took.values()) <= MOST_ASKED_S,
    }


def processor_s() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ask(url: str, query: str) -> tuple[float, float]:
    """The first number of an answer, and how many seconds it took."""
    import requests

    began = time.perf_counter()
    document = requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=30).json()
    took = time.perf_counter() - began
    assert document["status"] == "success", document
    result = document["data"]["result"]
    return float(result[0]["value"][1]) if result else math.nan, took


def serve_engines(ready: Connection, count: int, busy: float) -> None:
    """The engines' process: pages of as many engines, each on a port of its own."""
    import asyncio

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(ready, count, busy))


async def _serve(ready: Connection, count: int, busy: float) -> None:
    import asyncio

    from aiohttp import web

    from deploy.demo.engines.metrics import CONTENT_TYPE, Metrics
    from deploy.demo.engines.pods import read_pod
    from deploy.demo.engines.spec import engine_spec
    from tests.demo.engines.cluster import pod

    engine = read_pod(pod("d", "decode", 1, version="0.30.0"))
    assert engine is not None
    pages = [Metrics(engine_spec(engine), created=time.time()) for _ in range(count)]
    ports = []
    for metrics in pages:

        async def page(_: web.BaseRequest, metrics: Metrics = metrics) -> web.Response:
            return web.Response(body=metrics.exposition().encode(), headers={"Content-Type": CONTENT_TYPE})

        server = await asyncio.get_running_loop().create_server(
            web.Server(page, access_log=None), "127.0.0.1", 0
        )
        ports.append(server.sockets[0].getsockname()[1])
    ready.send(ports)
    while True:
        await asyncio.sleep(1.0)
        for metrics in pages[: round(busy * count)]:
            one_request(metrics)


def one_request(metrics: Any) -> None:
    """What a request leaves in an engine's counters."""
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "inter_token_latency_seconds"):
        metrics.observe(f"vllm:{name}", (os.urandom(1)[0] + 1) / 100, 4)
    for name in ("nixl_xfer_time_seconds", "request_queue_time_seconds", "request_decode_time_seconds"):
        metrics.observe(f"vllm:{name}", (os.urandom(1)[0] + 1) / 1000)
    metrics.count("vllm:request_success", label="length")
    metrics.count("vllm:generation_tokens", 16)
    metrics.set("vllm:kv_cache_usage_perc", os.urandom(1)[0] / 256)


if __name__ == "__main__":
    sys.exit(main())
