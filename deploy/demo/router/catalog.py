"""Plugin types of the llm-d router (main of 2026-08-22): which are Alpha, and which this router plays.

A type that the llm-d router registers and ours does not play is refused by name, so that nobody takes our answer for
the real one's. Types are those of recorded starts and of the router's registration list.
"""

from __future__ import annotations

# type -> what it is; a plugin listed in a profile counts there only if it is a filter, scorer or picker.
PLAYED: dict[str, str] = {
    "always-disagg-pd-decider": "decider",
    "anthropic-parser": "parser",
    "by-label": "filter",
    "by-label-selector": "filter",
    "core-metrics-extractor": "extractor",
    "decode-filter": "filter",
    "disagg-profile-handler": "handler",
    "disaggregatedset-rollout-screener": "screener",
    "encode-filter": "filter",
    # Without a queue, order and fairness between waiting requests are trivially kept; only the defaults are taken.
    "fcfs-ordering-policy": "ordering",
    "global-strict-fairness-policy": "fairness",
    "header-label-affinity-scorer": "scorer",
    "kv-cache-utilization-scorer": "scorer",
    "label-selector-filter": "filter",
    "max-score-picker": "picker",
    "metrics-data-source": "source",
    "openai-parser": "parser",
    "passthrough-parser": "parser",
    "prefill-filter": "filter",
    "prefix-based-pd-decider": "decider",
    "queue-scorer": "scorer",
    "random-picker": "picker",
    "single-profile-handler": "handler",
    "static-usage-limit-policy": "limit",
    "vllmhttp-parser": "parser",
    "weighted-random-picker": "picker",
}
NOT_PLAYED = frozenset(
    {
        "active-request-scorer",
        "agent-identity",
        "always-disagg-multimodal-decider",
        "approx-prefix-cache-producer",
        "burst-prefix-cache-producer",
        "concurrency-detector",
        "context-length-aware",
        "data-parallel-profile-handler",
        "disagg-headers-handler",
        "edf-ordering-policy",
        "endpoint-attribute-filter",
        "endpoint-attribute-scorer",
        "endpoint-notification-source",
        "file-discovery",
        "header-profile-handler",
        "inflight-load-producer",
        "k8s-notification-source",
        "latency-scorer",
        "latency-slo-admitter",
        "load-aware-scorer",
        "lora-affinity-scorer",
        "models-data-extractor",
        "models-data-source",
        "multi-modal-data-producer",
        "no-hit-lru-scorer",
        "p2p-source-producer",
        "pd-profile-handler",
        "precise-prefix-cache-producer",
        "precise-prefix-cache-scorer",
        "predicted-latency-producer",
        "prefill-header-handler",
        "prefix-cache-affinity-filter",
        "prefix-cache-scorer",
        "priority-holdback-policy",
        "priority-then-time-eviction-order-policy",
        "probabilistic-admitter",
        "program-aware-fairness",
        "request-attribute-reporter",
        "round-robin-fairness-policy",
        "running-requests-size-scorer",
        "session-affinity-filter",
        "session-affinity-scorer",
        "session-id-producer",
        "sglanghttp-parser",
        "sheddable-eviction-filter",
        "slo-deadline-ordering-policy",
        "slo-headroom-tier-filter",
        "soft-reflective-ceiling-policy",
        "token-load-scorer",
        "token-producer",
        "tokenizer",
        "topology-affinity-filter",
        "topology-affinity-scorer",
        "topology-extractor",
        "utilization-detector",
        "utilization-filter",
        "vertexai-parser",
        "vllmgrpc-parser",
    }
)
# Need --allow-experimental-plugins; declared is enough, even where nothing refers to them.
ALPHA = frozenset({"disaggregatedset-rollout-screener", "header-label-affinity-scorer"})
# Usable as a reference without being declared.
BUILT_IN = frozenset({"fcfs-ordering-policy", "global-strict-fairness-policy", "static-usage-limit-policy"})
PARSERS = frozenset(name for name, kind in PLAYED.items() if kind == "parser")
GATES: dict[str, bool] = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
