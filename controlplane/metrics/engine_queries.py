"""Named queries that engines answer."""

from __future__ import annotations

from controlplane.metrics.named import TIMES, Kind, Query, Term, Variant


def _vllm(top: Term | str, *bottom: Term | str, since: str = "", until: str = "") -> tuple[Variant, ...]:
    first, *rest = (Term(f"vllm:{t}") if isinstance(t, str) else t for t in (top, *bottom))
    return (Variant("vllm", first, tuple(rest), since, until),)


def _both(engine: str, separators: str, top: str, *bottom: str, scale: float = 1.0) -> tuple[Variant, ...]:
    """A variant for each spelling of the prefix: SGLang's code says `sglang:`, documents say `sglang_`."""
    return tuple(
        Variant(
            engine,
            Term(f"{engine}{mark}{top}"),
            tuple(Term(f"{engine}{mark}{name}") for name in bottom),
            scale=scale,
        )
        for mark in separators
    )


def _sglang(top: str, *bottom: str, scale: float = 1.0) -> tuple[Variant, ...]:
    return _both("sglang", ":_", top, *bottom, scale=scale)


def _trtllm(top: str) -> tuple[Variant, ...]:
    return _both("trtllm", "_:", top)


_SOURCE = "vllm:prompt_tokens_by_source_total"
_TRANSFERS = "nixl_xfer_time_seconds_count"
_FAILED = "nixl_num_failed_transfers_total"

ENGINE_QUERIES = (
    Query(
        "requests_running",
        Kind.SUM,
        "count",
        "Requests in the running batches now. Over both roles a disaggregated request counts twice.",
        (*_vllm("num_requests_running"), *_sglang("num_running_reqs")),
    ),
    Query(
        "requests_waiting",
        Kind.SUM,
        "count",
        "Requests that wait now: for capacity, and on decode also for their KV cache to arrive.",
        (*_vllm("num_requests_waiting"), *_sglang("num_queue_reqs")),
    ),
    Query(
        "queue_per_group",
        Kind.PER_POD,
        "count",
        "Requests that wait now, per group.",
        (*_vllm("num_requests_waiting"), *_sglang("num_queue_reqs")),
    ),
    Query(
        "kv_usage",
        Kind.MEAN,
        "ratio",
        "Used share of the KV cache now, as the mean over engines. Spikes between two scrapes are not seen.",
        (
            *_vllm("kv_cache_usage_perc", since="0.12"),
            *_vllm("gpu_cache_usage_perc", until="0.12"),
            *_sglang("token_usage"),
            *_trtllm("kv_cache_utilization"),
        ),
    ),
    Query(
        "kv_usage_peak",
        Kind.PEAK,
        "ratio",
        "The highest used share of the KV cache that any scrape of any engine saw in the window.",
        (
            *_vllm("kv_cache_usage_perc", since="0.12"),
            *_vllm("gpu_cache_usage_perc", until="0.12"),
            *_sglang("token_usage"),
            *_trtllm("kv_cache_utilization"),
        ),
    ),
    Query(
        "ttft",
        Kind.HISTOGRAM,
        "seconds",
        "From a request's arrival at this pod to this pod's first token. On decode that is the wait for the KV cache "
        "and one step. Quantiles of prefill and decode do not add up; means do, about.",
        (
            *_vllm("time_to_first_token_seconds"),
            *_sglang("time_to_first_token_seconds"),
            *_trtllm("time_to_first_token_seconds"),
        ),
        min_samples=100,
        stats=TIMES,
    ),
    Query(
        "itl",
        Kind.HISTOGRAM,
        "seconds",
        "Time between two tokens of one answer. Prefill pods make one token per request: read it on decode.",
        (
            *_vllm("inter_token_latency_seconds", since="0.11"),
            *_vllm("time_per_output_token_seconds", until="0.12"),
            *_sglang("inter_token_latency_seconds"),
            *_trtllm("time_per_output_token_seconds"),
        ),
        min_samples=100,
        stats=TIMES,
    ),
    Query(
        "e2e",
        Kind.HISTOGRAM,
        "seconds",
        "A request's whole time on this pod, not the user's. vLLM's buckets begin at 0.3 s: below, read the mean.",
        (
            *_vllm("e2e_request_latency_seconds"),
            *_sglang("e2e_request_latency_seconds"),
            *_trtllm("e2e_request_latency_seconds"),
        ),
        min_samples=100,
        stats=TIMES,
    ),
    Query(
        "finished_requests",
        Kind.COUNT,
        "count",
        "Requests that each pod finished, whatever their end. On prefill that is how many it served.",
        _vllm("request_success_total"),
        by=("pod",),
    ),
    Query(
        "error_ratio",
        Kind.RATIO,
        "ratio",
        "Finished requests that ended in an internal error, such as a failed KV load, of all that finished.",
        _vllm(
            Term("vllm:request_success_total", 'finished_reason="error"'),
            "request_success_total",
        ),
        min_samples=100,
    ),
    Query(
        "failed_transfers_ratio",
        Kind.RATIO,
        "ratio",
        "Failed KV transfers of all that were tried; a failed one never enters the times. Told by the reading side "
        "(decode; prefill where it pushes). What counts as one failure has changed with vLLM's versions.",
        (
            *_vllm(_FAILED, _FAILED, _TRANSFERS, since="0.14"),
            *_vllm(
                "mooncake_num_failed_transfers_total",
                "mooncake_num_failed_transfers_total",
                "mooncake_xfer_time_seconds_count",
                since="0.33",
            ),
            *_sglang(
                "num_transfer_failed_reqs_total",
                "num_transfer_failed_reqs_total",
                "kv_transfer_latency_ms_count",
            ),
        ),
        min_samples=100,
    ),
    Query(
        "expired_leases",
        Kind.COUNT,
        "count",
        "Requests whose KV cache prefill gave up because nobody fetched it in time. Told by prefill.",
        (
            *_vllm("nixl_num_kv_expired_reqs_total", since="0.17"),
            *_vllm("mooncake_num_kv_expired_reqs_total", since="0.33"),
        ),
    ),
    Query(
        "expired_leases_ratio",
        Kind.RATIO,
        "ratio",
        "The same, of all requests that prefill finished.",
        (
            *_vllm("nixl_num_kv_expired_reqs_total", "request_success_total", since="0.17"),
            *_vllm("mooncake_num_kv_expired_reqs_total", "request_success_total", since="0.33"),
        ),
        min_samples=100,
    ),
    Query(
        "transfer_time",
        Kind.HISTOGRAM,
        "seconds",
        "One KV transfer between two ranks (SGLang, TensorRT-LLM: of one request). vLLM's buckets begin at 5 ms and "
        "end at 5 s: trust the mean below, and read 'at least' above.",
        (
            *_vllm("nixl_xfer_time_seconds", since="0.14"),
            *_vllm("mooncake_xfer_time_seconds", since="0.33"),
            *_sglang("kv_transfer_latency_ms", scale=0.001),
            *_trtllm("kv_transfer_latency_seconds"),
        ),
        min_samples=20,
        stats=("mean", "p95", "count"),
    ),
    Query(
        "transfer_bytes_per_token",
        Kind.RATIO,
        "bytes",
        "KV bytes that moved for each prompt token that came by transfer; to be compared with the model's own size.",
        (
            *_vllm(
                "nixl_bytes_transferred_sum", Term(_SOURCE, 'source="external_kv_transfer"'), since="0.17"
            ),
            *_vllm(
                "mooncake_bytes_transferred_sum", Term(_SOURCE, 'source="external_kv_transfer"'), since="0.33"
            ),
        ),
        over_roles=True,
        min_samples=1000,
    ),
    Query(
        "disaggregated_share",
        Kind.RATIO,
        "ratio",
        "Prompt tokens that came by KV transfer, of all prompt tokens; on decode the best proof that disaggregation "
        "works.",
        _vllm(Term(_SOURCE, 'source="external_kv_transfer"'), Term(_SOURCE), since="0.17"),
        min_samples=1000,
    ),
    Query(
        "local_compute_share",
        Kind.RATIO,
        "ratio",
        "Prompt tokens computed on the pod itself, of all prompt tokens; on decode these are prefills that nobody "
        "sees. Before vLLM 0.21 one token per transferred request is among them.",
        _vllm(Term(_SOURCE, 'source="local_compute"'), Term(_SOURCE), since="0.17"),
        min_samples=1000,
    ),
    Query(
        "freshness",
        Kind.FRESHNESS,
        "seconds",
        "Seconds since the last good scrape of each pod. Prometheus forgets a pod whose scrape fails at once: "
        "compare with the pods that there are.",
        (),
    ),
)
