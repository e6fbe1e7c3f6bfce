"""Named queries that the router answers: the llm-d router, or the older endpoint picker where it knows the number."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.metrics.named import TIMES, Kind, Query, Term, Variant

_FLOW = "flow_control_pool_saturation"  # there exactly where flow control is on
_GATING = "disaggregatedset_revision_gating_share"  # there where the router screens revisions


def _counter(
    top: Term | str, bottom: Sequence[str] = (), *, proof: str = "", engine: str = "llm-d-router"
) -> Variant:
    """The router's counters appear with their first event."""
    first = Term(top) if isinstance(top, str) else top
    return Variant(engine, first, tuple(Term(name) for name in bottom), born_late=True, proof=proof)


def _late_gauge(name: str, *, proof: str = "", engine: str = "llm-d-router") -> Variant:
    return Variant(engine, Term(name), born_late=True, proof=proof)


ROUTER_QUERIES = (
    Query(
        "scheduler_attempts",
        Kind.ATTEMPTS,
        "count",
        "Requests that the router gave to each endpoint, with role and revision of its pod; empty where the pod is "
        "not known as one of the set.",
        (
            _counter(Term("scheduler_attempts_total", 'status="success"')),
            _counter(
                Term("inference_extension_scheduler_attempts_total", 'status="success"'), engine="gaie-epp"
            ),
        ),
        router=True,
    ),
    Query(
        "gating_share",
        Kind.MEAN,
        "ratio",
        "The share of requests that the router means each revision to get; 0 where a required role is missing.",
        (Variant("llm-d-router", Term(_GATING)),),
        by=("mode", "revision"),
        router=True,
    ),
    Query(
        "disagg_decisions",
        Kind.COUNT,
        "count",
        "Requests by the path that the router decided on: decode alone, or prefill and decode.",
        (_counter("disagg_decision_total"),),
        by=("decision_type",),
        router=True,
    ),
    Query(
        "decode_only_share",
        Kind.RATIO,
        "ratio",
        "Requests that skip prefill, of all that the router decided on.",
        (
            _counter(
                Term("disagg_decision_total", 'decision_type=~"decode-only|encode-decode"'),
                ["disagg_decision_total"],
            ),
        ),
        min_samples=100,
        router=True,
    ),
    Query(
        "ready_endpoints",
        Kind.MEAN,
        "count",
        "Endpoints that the router knows with fresh metrics, per router replica.",
        (_late_gauge("ready_endpoints"), _late_gauge("inference_pool_ready_pods", engine="gaie-epp")),
        router=True,
    ),
    Query(
        "strict_header_no_match",
        Kind.COUNT,
        "count",
        "Requests pinned to a revision that has no complete set of pods; each was refused.",
        (_counter("disaggregatedset_strict_header_no_match_total", proof=_GATING),),
        by=("selector",),
        router=True,
    ),
    Query(
        "flow_queue",
        Kind.SUM,
        "count",
        "Requests waiting in flow control now, by priority.",
        (
            _late_gauge("flow_control_queue_size", proof=_FLOW),
            _late_gauge(
                "inference_extension_flow_control_queue_size",
                proof=f"inference_extension_{_FLOW}",
                engine="gaie-epp",
            ),
        ),
        by=("priority",),
        router=True,
    ),
    Query(
        "flow_outcomes",
        Kind.COUNT,
        "count",
        "What became of requests in flow control, by outcome and priority.",
        (_counter("flow_control_requests_total", proof=_FLOW),),
        by=("outcome", "priority"),
        router=True,
    ),
    Query(
        "router_error_ratio",
        Kind.RATIO,
        "ratio",
        "Requests that the router answered with an error, of all that it got.",
        (
            _counter("request_error_total", ["request_total"]),
            _counter(
                "inference_objective_request_error_total",
                ["inference_objective_request_total"],
                engine="gaie-epp",
            ),
        ),
        min_samples=100,
        router=True,
    ),
    Query(
        "router_error_codes",
        Kind.COUNT,
        "count",
        "Requests that the router answered with an error, by code.",
        (
            _counter("request_error_total"),
            _counter("inference_objective_request_error_total", engine="gaie-epp"),
        ),
        by=("error_code",),
        router=True,
    ),
    Query(
        "user_ttft",
        Kind.HISTOGRAM,
        "seconds",
        "From a streaming request's arrival at the router to its first token: what a user waits.",
        (_counter(Term("request_ttft_seconds", 'streaming="true"')),),
        min_samples=100,
        stats=TIMES,
        router=True,
    ),
)
