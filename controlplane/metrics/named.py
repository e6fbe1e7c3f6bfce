"""What a named query is: what its number means, and under which names which engine and version exposes it.

Names and versions are facts about vLLM (0.11 to 0.33 read; 0.30 and 0.33 supported first), SGLang 0.5.23, TensorRT-LLM
through Dynamo 1.6 and the llm-d router (0.9 and later) or the older endpoint picker of the Gateway API Inference
Extension. Counters are written as they are scraped, with `_total`. A query on a name that is not there gives nothing,
never zero, so names are looked for first (survey.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    """How a number is made of its terms (the texts are in promql.py)."""

    SUM = "sum"  # of a gauge, now
    MEAN = "mean"  # of a gauge, now: each rank of each pod counts the same
    PER_POD = "per-pod"  # of a gauge, now: summed over the ranks of a pod, mean over pods
    PEAK = "peak"  # of a gauge, highest scrape in the window
    COUNT = "count"  # of events in the window
    RATIO = "ratio"  # of two counts
    HISTOGRAM = "histogram"  # quantiles and mean of observations in the window
    ATTEMPTS = "attempts"  # events by endpoint of the router, with the labels of the endpoint's pod
    FRESHNESS = "freshness"  # seconds since the last good scrape, by pod


@dataclass(frozen=True, slots=True)
class Term:
    """One metric as scraped, without a source's prefix; for a histogram without `_bucket`, `_sum`, `_count`.
    `where` are fixed matchers in PromQL."""

    name: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """How one engine exposes a number: `top` over the sum of `bottom` (a ratio), or `top` alone. `since` is
    the first and `until` the first version no more, as far as known; what a metric means in which version is
    in policy/gates/versions.py. `scale` makes the engine's unit ours. `born_late`: the series appears with its
    first event, so where `proof` (empty: the engine's anchor) is scraped, absence means zero; everywhere else
    it means that the number is not exposed.
    """

    engine: str
    top: Term
    bottom: tuple[Term, ...] = ()
    since: str = ""
    until: str = ""
    scale: float = 1.0
    born_late: bool = False
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A named number. `by` are labels that are kept apart: of the metric itself, or `pod`. `over_roles`: the terms are
    told by different roles, so one number is made of all. `min_samples`: below it, no verdict. `stats`: what
    is given unless something else is asked for. `router`: told by the router, not by engines."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    variants: tuple[Variant, ...] = field(default=(), repr=False)
    by: tuple[str, ...] = ()
    over_roles: bool = False
    min_samples: int = 0
    stats: tuple[str, ...] = ("value",)
    router: bool = False


# Made at start, without traffic: proof that a pod is scraped, and which engine it runs. The first that is found is
# taken; a router may expose its old names beside the new ones.
ENGINE_ANCHORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "vllm": ("vllm:num_requests_running",),
        "sglang": ("sglang:num_running_reqs", "sglang_num_running_reqs"),
        "trtllm": ("trtllm_kv_cache_utilization", "trtllm:kv_cache_utilization"),
    }
)
ROUTER_ANCHORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "llm-d-router": ("info", "ready_endpoints"),
        "gaie-epp": ("inference_extension_info", "inference_pool_ready_pods"),
    }
)
ENGINE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "vllm": "vLLM",
        "sglang": "SGLang",
        "trtllm": "TensorRT-LLM",
        "llm-d-router": "the llm-d router",
        "gaie-epp": "the endpoint picker",
    }
)
QUANTILES = ("p50", "p95", "p99")
TIMES = (*QUANTILES, "mean", "count")
