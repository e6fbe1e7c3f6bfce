"""Metric families of vLLM by release: names as declared, kinds, buckets, label sets, and when they exist.

Counters are scraped as <name>_total; counters and histograms also have a <name>_created gauge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deploy.demo.engines.spec import EngineSpec

Kind = Literal["counter", "gauge", "histogram"]
Release = tuple[int, int]

TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
TOKEN_GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
XFER = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5)
POST = (0.001, *XFER)
BYTES = tuple(2.0**power for power in range(11, 34, 2))
PIECES = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PER_REQUEST = (1, 2, 5, 10, 20)
SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
CACHES = ("device", "host", "p2p", "disk", "external_unspecified")
REASONS = ("stop", "length", "abort", "error", "repetition")
STAGES = ("waiting_to_start", "in_progress", "completed_waiting")


@dataclass(frozen=True)
class Family:
    """One family. ``values`` are the label values that exist from the start, ("",) for none of its own.

    ``engine`` False: the family has no engine label. ``tokens``: buckets are the 1-2-5 series up to the max length.
    """

    name: str
    kind: Kind
    text: str
    buckets: Sequence[float] = ()
    label: str = ""
    values: tuple[str, ...] = ("",)
    since: Release = (0, 0)
    until: Release = (9, 0)
    needs: Literal["", "connector", "consumer"] = ""
    tokens: bool = False
    engine: bool = True


FAMILIES: tuple[Family, ...] = (
    Family("vllm:num_requests_running", "gauge", "Requests in execution batches."),
    Family("vllm:num_requests_waiting", "gauge", "Requests waiting to be processed."),
    Family(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Waiting requests by reason.",
        label="reason",
        values=("capacity", "deferred"),
        since=(0, 20),
    ),
    Family(
        "vllm:num_requests_kv_fetch_by_stage",
        "gauge",
        "Requests whose KV is fetched, by stage.",
        label="stage",
        values=STAGES,
        since=(0, 31),
        needs="consumer",
    ),
    Family(
        "vllm:engine_sleep_state",
        "gauge",
        "Sleep state of the engine.",
        label="sleep_state",
        values=("awake", "weights_offloaded", "discard_all"),
    ),
    Family("vllm:kv_cache_usage_perc", "gauge", "KV cache usage; 1 is all of it."),
    Family("vllm:prefix_cache_queries", "counter", "Prefix cache queries in tokens."),
    Family("vllm:prefix_cache_hits", "counter", "Prefix cache hits in tokens."),
    Family(
        "vllm:external_prefix_cache_queries",
        "counter",
        "Queries to the KV connector in tokens.",
        since=(0, 14),
    ),
    Family(
        "vllm:external_prefix_cache_hits", "counter", "Hits of the KV connector in tokens.", since=(0, 14)
    ),
    Family("vllm:num_preemptions", "counter", "Preemptions."),
    Family("vllm:prompt_tokens", "counter", "Prompt tokens processed."),
    Family(
        "vllm:prompt_tokens_by_source",
        "counter",
        "Prompt tokens by where their KV came from.",
        label="source",
        values=SOURCES,
        since=(0, 17),
    ),
    Family(
        "vllm:prompt_tokens_cached", "counter", "Prompt tokens that were not computed here.", since=(0, 17)
    ),
    Family(
        "vllm:prompt_tokens_cached_by_source",
        "counter",
        "Cached prompt tokens by tier.",
        label="source",
        values=CACHES,
        since=(0, 33),
    ),
    Family("vllm:generation_tokens", "counter", "Generated tokens."),
    Family(
        "vllm:request_success",
        "counter",
        "Finished requests.",
        label="finished_reason",
        values=REASONS,
    ),
    Family(
        "vllm:admission_rejections",
        "counter",
        "Requests refused at admission.",
        label="reason",
        values=(),
        since=(0, 33),
        engine=False,
    ),
    Family("vllm:request_prompt_tokens", "histogram", "Prompt tokens per request.", tokens=True),
    Family("vllm:request_generation_tokens", "histogram", "Generated tokens per request.", tokens=True),
    Family("vllm:iteration_tokens_total", "histogram", "Tokens per engine step.", STEP_TOKENS),
    Family("vllm:request_max_num_generation_tokens", "histogram", "Most tokens asked for.", tokens=True),
    Family("vllm:request_params_n", "histogram", "Request parameter n.", PER_REQUEST),
    Family("vllm:request_params_max_tokens", "histogram", "Request parameter max_tokens.", tokens=True),
    Family("vllm:request_prefill_kv_computed_tokens", "histogram", "KV tokens computed here.", tokens=True),
    Family(
        "vllm:request_num_preemptions", "histogram", "Preemptions per request.", PER_REQUEST, since=(0, 30)
    ),
    Family("vllm:time_to_first_token_seconds", "histogram", "Time to first token.", TTFT),
    Family("vllm:inter_token_latency_seconds", "histogram", "Time between tokens.", TOKEN_GAP),
    Family("vllm:request_time_per_output_token_seconds", "histogram", "Mean time per token.", TOKEN_GAP),
    Family("vllm:e2e_request_latency_seconds", "histogram", "Time of requests.", REQUEST),
    Family("vllm:request_queue_time_seconds", "histogram", "Time until scheduled.", REQUEST),
    Family("vllm:request_inference_time_seconds", "histogram", "Time in the running phase.", REQUEST),
    Family("vllm:request_prefill_time_seconds", "histogram", "Time in the prefill phase.", REQUEST),
    Family("vllm:request_decode_time_seconds", "histogram", "Time in the decode phase.", REQUEST),
    *(
        Family(f"vllm:nixl_{name}", "histogram", text, buckets, since=(0, 14), needs="connector")
        for name, text, buckets in (
            ("xfer_time_seconds", "Time of KV transfers.", XFER),
            ("post_time_seconds", "Time to post KV transfers.", POST),
            ("bytes_transferred", "Bytes per KV transfer.", BYTES),
            ("num_descriptors", "Descriptors per KV transfer.", PIECES),
        )
    ),
    *(
        Family(f"vllm:nixl_{name}", "counter", text, since=since, needs="connector")
        for name, text, since in (
            ("num_failed_transfers", "Failed KV transfers.", (0, 14)),
            ("num_failed_notifications", "Failed KV notifications.", (0, 14)),
            ("num_kv_expired_reqs", "Requests whose KV expired.", (0, 17)),
            ("num_notifications_after_expiry", "Notifications for expired KV.", (0, 31)),
        )
    ),
)


def families_of(spec: EngineSpec) -> list[Family]:
    """The families that an engine of this release and role exposes, besides cache_config_info."""
    consumer = spec.kv_role in ("kv_consumer", "kv_both")
    have = {"": True, "connector": bool(spec.connector), "consumer": bool(spec.connector) and consumer}
    return [
        family for family in FAMILIES if family.since <= spec.release < family.until and have[family.needs]
    ]


def token_buckets(longest: int) -> list[float]:
    """The 1-2-5 series up to ``longest``."""
    found: list[float] = []
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale > longest:
                return found
            found.append(float(step * scale))
        scale *= 10
