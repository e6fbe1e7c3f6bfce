"""Every named query, question by question: a real Prometheus and ours, with the same samples, say the same."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.queries import QUERIES
from tests.controlplane.metrics.real import STALE
from tests.controlplane.metrics.story import SET, WINDOW, Story
from tests.demo.metrics.both import Both, JudgedClient

pytestmark = pytest.mark.rig
Told = list[tuple[str, dict[float, float], dict[str, str]]]  # name, samples by age, labels
OLD, NEW = "aaaa1111", "bbbb2222"
BOUNDS = {
    "vllm:time_to_first_token_seconds": ("0.001", "0.1", "1.0", "10.0"),
    "vllm:inter_token_latency_seconds": ("0.01", "0.1", "1.0"),
    "vllm:e2e_request_latency_seconds": ("0.3", "1.0", "60.0"),
    "vllm:nixl_xfer_time_seconds": ("0.005", "0.1", "5.0"),
    "sglang:time_to_first_token_seconds": ("0.1", "0.4"),
    "sglang:kv_transfer_latency_ms": ("1.0", "100.0"),
    "trtllm_time_to_first_token_seconds": ("0.1", "0.4"),
    "llm_d_epp_request_ttft_seconds": ("0.1", "1.0", "120.0"),
}
COUNTERS = (
    ("vllm:request_success_total", {"finished_reason": "length"}),
    ("vllm:request_success_total", {"finished_reason": "error"}),
    ("vllm:nixl_num_failed_transfers_total", {}),
    ("vllm:nixl_num_kv_expired_reqs_total", {}),
    ("vllm:nixl_bytes_transferred_sum", {}),
    ("vllm:prompt_tokens_by_source_total", {"source": "external_kv_transfer"}),
    ("vllm:prompt_tokens_by_source_total", {"source": "local_compute"}),
)
GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),
    "trtllm": ("trtllm_kv_cache_utilization",),
}
PODS = [
    ("p0", "prefill", OLD),
    ("p1", "prefill", OLD),
    ("d0", "decode", OLD),
    ("p2", "prefill", NEW),
    ("d1", "decode", NEW),
]


@pytest.fixture
def client(both: Both) -> Iterator[JudgedClient]:
    with JudgedClient(both, timeout_s=20) as opened:
        yield opened


@st.composite
def lives(draw: st.DrawFn) -> list[float]:
    """Ages at which a pod was scraped, oldest first: not always evenly, not always to the end."""
    since = draw(st.sampled_from([1500, 700, 400, 239, 120, 61, 30, 7]))
    until = draw(st.sampled_from([0, 0, 0, 20, 290, 301, 600]))
    every = draw(st.sampled_from([1.0, 5.0, 15.0]))
    ages = [since - every * number for number in range(int(max(0, since - until) / every) + 1)]
    if len(ages) > 8:
        gap = draw(st.integers(0, len(ages) - 4))
        ages = ages[:gap] + ages[gap + draw(st.sampled_from([0, 0, 3])) :]
    late = draw(st.sampled_from([0.0, 0.0, 0.313]))
    return [age - late if age > late else age for age in ages]


@st.composite
def counters(draw: st.DrawFn, ages: list[float]) -> dict[float, float]:
    """A counter at these ages: it may begin beyond zero, stand still, leap, and begin anew."""
    value = draw(st.sampled_from([0.0, 0.0, 3.0, 7e4]))
    steps = draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5, 40.0, math.nan]), min_size=6, max_size=6))
    reset = draw(st.sampled_from([None, None, 0.5, 0.9]))
    found = {}
    for number, age in enumerate(ages):
        step = steps[number * 6 // max(1, len(ages))]
        value = 1.0 if reset is not None and number == int(reset * len(ages)) else value
        value += 0.0 if math.isnan(step) else step
        found[age] = value
    return found


def ended(points: dict[float, float], ages: list[float], *, seen: bool) -> dict[float, float]:
    """The same, ended a moment after the last scrape if that was seen."""
    return {**points, max(0.0, ages[-1] - 1): STALE} if seen and ages and ages[-1] > 0 else points


@st.composite
def stories(draw: st.DrawFn) -> Told:
    """What engines of two revisions and a router exposed: (name, samples by age, labels)."""
    told: Told = []
    engine = draw(st.sampled_from(["vllm", "vllm", "vllm", "sglang", "trtllm"]))
    for pod, role, revision in draw(st.lists(st.sampled_from(PODS), min_size=1, max_size=5, unique=True)):
        ages, seen = draw(lives()), draw(st.booleans())
        place = {
            "pod": pod,
            "role": role,
            "revision": revision,
            "set": SET,
            "slice": "0",
            "instance": f"{pod}:8000",
        }
        for name, points, more in draw(exposed(engine, ages)):
            told.append((name, ended(points, ages, seen=seen), place | more))
    ages = draw(lives())
    router = {"pod": "chat-epp-7d9f-abcde", "instance": "chat-epp-7d9f-abcde:9090"}
    told += [
        (name, points, router | more) for name, points, more in draw(st.one_of(routed(ages), picked(ages)))
    ]
    return told


@st.composite
def exposed(draw: st.DrawFn, engine: str, ages: list[float]) -> Told:
    level = draw(st.sampled_from([0.0, 0.25, 3.0]))
    told: Told = [(name, {age: level + age % 7 for age in ages}, {"engine": "0"}) for name in GAUGES[engine]]
    if draw(st.booleans()):
        told.append(("process_start_time_seconds", {age: 1.7e9 + age % 2 for age in ages}, {}))
    for name, labels in COUNTERS if engine == "vllm" else ():
        if draw(st.integers(0, 3)):
            told.append((name, draw(counters(ages)), {**labels, "engine": "0"}))
    for name, bounds in BOUNDS.items():
        if name.startswith(engine) and draw(st.integers(0, 3)):
            told += draw(histograms(name, draw(st.sampled_from([bounds, bounds, bounds[1:]])), ages))
    return told


@st.composite
def histograms(draw: st.DrawFn, name: str, bounds: tuple[str, ...], ages: list[float]) -> Told:
    parts = [draw(counters(ages)) for _ in (*bounds, "+Inf")]
    told, below = [], dict.fromkeys(ages, 0.0)
    for bound, part in zip((*bounds, "+Inf"), parts, strict=True):
        below = {age: below[age] + part[age] for age in ages}
        told.append((f"{name}_bucket", dict(below), {"le": bound}))
    return [*told, (f"{name}_count", dict(below), {}), (f"{name}_sum", draw(counters(ages)), {})]


@st.composite
def routed(draw: st.DrawFn, ages: list[float]) -> Told:
    told: Told = [("llm_d_epp_info", dict.fromkeys(ages, 1.0), {})]
    for endpoint in draw(st.lists(st.sampled_from(["p0", "p0-rank-1", "d0", "d1", "stranger"]), unique=True)):
        labels = {"endpoint_name": endpoint, "status": "success"}
        told.append(("llm_d_epp_scheduler_attempts_total", draw(counters(ages)), labels))
    for revision in (OLD, NEW):
        labels = {"mode": "max-role", "revision": revision}
        told.append(("llm_d_epp_disaggregatedset_revision_gating_share", dict.fromkeys(ages, 0.5), labels))
    for name, more in (
        ("disagg_decision_total", {"decision_type": "decode-only"}),
        ("disagg_decision_total", {"decision_type": "prefill-decode"}),
        ("flow_control_requests_total", {"outcome": "dispatched", "priority": "0"}),
        ("request_total", {}),
        ("request_error_total", {"error_code": "503"}),
        ("disaggregatedset_strict_header_no_match_total", {"selector": "revision"}),
    ):
        if draw(st.integers(0, 3)):
            told.append((f"llm_d_epp_{name}", draw(counters(ages)), more))
    for name in ("ready_endpoints", "flow_control_queue_size", "flow_control_pool_saturation"):
        told.append((f"llm_d_epp_{name}", {age: age % 5 for age in ages}, {"priority": "0"}))
    name = "llm_d_epp_request_ttft_seconds"
    told += [
        (part, points, more | {"streaming": "true"})
        for part, points, more in draw(histograms(name, BOUNDS[name], ages))
    ]
    return told


@st.composite
def picked(draw: st.DrawFn, ages: list[float]) -> Told:
    """The older endpoint picker in the router's place."""
    told: Told = [("inference_extension_info", dict.fromkeys(ages, 1.0), {})]
    for endpoint in draw(st.lists(st.sampled_from(["p0", "d0", "d1", "stranger"]), unique=True)):
        labels = {"pod_name": endpoint, "status": "success"}
        told.append(("inference_extension_scheduler_attempts_total", draw(counters(ages)), labels))
    for name, more in (("request_total", {}), ("request_error_total", {"error_code": "503"})):
        if draw(st.integers(0, 3)):
            told.append((f"inference_objective_{name}", draw(counters(ages)), more))
    for name in (
        "pool_ready_pods",
        "extension_flow_control_queue_size",
        "extension_flow_control_pool_saturation",
    ):
        told.append((f"inference_{name}", {age: age % 5 for age in ages}, {"priority": "0"}))
    return told


@settings(max_examples=30, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    told=stories(),
    window=st.sampled_from([10, WINDOW, 300]),
    born=st.sampled_from([5, 60, 200, 3600]),
    cut=st.sampled_from([None, 45, 130]),
)
def test_every_named_query_gives_the_same_numbers(
    both: Both, client: JudgedClient, told: Told, window: int, born: int, cut: int | None
) -> None:
    story = Story(both, client)  # type: ignore[arg-type]  # it writes, and that is all
    for name, points, labels in told:
        if points:
            story.series(name, points, **labels)
    counted = 0.0 if cut is None else story.now - cut
    revisions = [
        Incarnation(label, story.now - age, counted_from=counted) for label, age in ((OLD, 3600), (NEW, born))
    ]
    before = both.compared
    found = story.measure_all(list(QUERIES), revisions=revisions, window_s=window)
    assert found and both.compared > before
    # What is shown beside a number, to be asked elsewhere, must be understood as well.
    for one in found:
        if one.query:
            both.agree(one.query, story.now)
