"""/metrics as Prometheus and a reader of vLLM's documentation expect it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.demo.engines.families import XFER, Family
from deploy.demo.engines.metrics import Metrics
from deploy.demo.engines.pods import read_pod
from deploy.demo.engines.spec import engine_spec
from tests.demo.engines.cluster import cluster, pod

GAUGES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:engine_sleep_state",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
}
COUNTERS = {
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:external_prefix_cache_queries",
    "vllm:external_prefix_cache_hits",
    "vllm:num_preemptions",
    "vllm:prompt_tokens",
    "vllm:prompt_tokens_by_source",
    "vllm:prompt_tokens_cached",
    "vllm:generation_tokens",
    "vllm:request_success",
    "vllm:nixl_num_failed_transfers",
    "vllm:nixl_num_failed_notifications",
    "vllm:nixl_num_kv_expired_reqs",
}
HISTOGRAMS = {
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:iteration_tokens_total",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_params_n",
    "vllm:request_params_max_tokens",
    "vllm:request_prefill_kv_computed_tokens",
    "vllm:request_num_preemptions",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:nixl_xfer_time_seconds",
    "vllm:nixl_post_time_seconds",
    "vllm:nixl_bytes_transferred",
    "vllm:nixl_num_descriptors",
}
NEW_IN_33 = {
    "vllm:prompt_tokens_cached_by_source": "counter",
    "vllm:admission_rejections": "counter",
    "vllm:nixl_num_notifications_after_expiry": "counter",
    "vllm:num_requests_kv_fetch_by_stage": "gauge",
}
NIXL = {name for name in COUNTERS | HISTOGRAMS | NEW_IN_33.keys() if "nixl" in name}


def spec_of(version: str = "0.30.0", role: str = "decode", **options: Any) -> Any:
    made = read_pod(pod("d", role, 1, version=version, **options))
    assert made is not None
    return engine_spec(made)


def by_labels(line: str) -> str:
    """A sample's line with its labels in order: the library sorts le in among them in the text format."""
    name, brace, rest = line.partition("{")
    labels, end, value = rest.rpartition("}")
    return name + brace + ",".join(sorted(labels.split(","))) + end + value


def kinds(text: str) -> dict[str, str]:
    """Declared families by name; the _created gauges aside."""
    found = {family.name: family.type for family in text_string_to_metric_families(text)}
    return {name: kind for name, kind in found.items() if not name.endswith("_created")}


def expected(version: str) -> dict[str, str]:
    names = {name: "gauge" for name in GAUGES}
    names |= {name: "counter" for name in COUNTERS}
    names |= {name: "histogram" for name in HISTOGRAMS}
    return names | NEW_IN_33 if version.startswith("0.33") else names


@pytest.mark.parametrize("version", ["0.30.0", "0.33.0"])
def test_exactly_the_names_of_the_release(version: str) -> None:
    text = Metrics(spec_of(version), created=1.0).exposition()
    assert kinds(text) == expected(version)
    for name, kind in expected(version).items():
        suffix = {"counter": "_total", "histogram": "_bucket", "gauge": ""}[kind]
        declared = f"# TYPE {name}{'_total' if kind == 'counter' else ''} {kind}\n"
        assert declared in text
        if name != "vllm:admission_rejections":  # a counter of labels that nobody has seen yet has no series
            assert f"\n{name}{suffix}{{" in text
        if kind != "gauge" and name != "vllm:admission_rejections":
            assert f"\n{name}_created{{" in text


@pytest.mark.parametrize("version", ["0.30.0", "0.33.0"])
def test_without_a_connector_there_is_nothing_of_transfers(version: str) -> None:
    names = kinds(Metrics(spec_of(version, connector=""), created=1.0).exposition())
    assert expected(version).keys() - names.keys() == {
        name for name in expected(version) if name in NIXL or name == "vllm:num_requests_kv_fetch_by_stage"
    }


def test_fetch_stages_are_those_of_readers() -> None:
    for role, shown in (("prefill", False), ("decode", True), ("both", True)):
        names = kinds(Metrics(spec_of("0.33.0", role), created=1.0).exposition())
        assert ("vllm:num_requests_kv_fetch_by_stage" in names) == shown
        assert NIXL <= names.keys()  # with zeros on both roles


def test_older_releases_lack_what_came_later() -> None:
    old = kinds(Metrics(spec_of("0.14.0"), created=1.0).exposition())
    for name in ("prompt_tokens_by_source", "num_requests_waiting_by_reason", "nixl_num_kv_expired_reqs"):
        assert f"vllm:{name}" not in old
    assert "vllm:nixl_xfer_time_seconds" in old
    assert "vllm:nixl_xfer_time_seconds" not in kinds(Metrics(spec_of("0.11.0"), created=1.0).exposition())


def test_text_is_what_prometheus_client_writes() -> None:
    """Numbers, escapes, order and _created series, against the library that vLLM uses."""
    registry = CollectorRegistry()
    labels = {"engine": "0", "model_name": 'odd "name"\\'}
    Gauge("vllm:num_requests_running", "Requests in execution batches.", [*labels], registry=registry).labels(
        **labels
    )
    counter = Counter("vllm:num_preemptions", "Preemptions.", [*labels], registry=registry).labels(**labels)
    counter.inc(3)
    time_histogram = Histogram(
        "vllm:nixl_xfer_time_seconds", "Time of KV transfers.", [*labels], buckets=XFER, registry=registry
    ).labels(**labels)
    for value in (0.005, 0.0051, 0.3, 7.0):
        time_histogram.observe(value)
    created = counter._created
    time_histogram._created = created
    mine = Metrics(spec_of(extra=["--served-model-name", labels["model_name"]]), created=created)
    mine.count("vllm:num_preemptions", 3)
    for value in (0.005, 0.0051, 0.3, 7.0):
        mine.observe("vllm:nixl_xfer_time_seconds", value)
    theirs = [
        by_labels(line) for line in generate_latest(registry).decode().splitlines() if "HELP" not in line
    ]
    text = [by_labels(line) for line in mine.exposition().splitlines()]
    blocks = "\n".join(line for line in text if "HELP" not in line)
    names = ("num_requests_running", "num_preemptions", "nixl_xfer_time_seconds")
    for name in names:
        block = "\n".join(line for line in theirs if name in line)
        assert block in blocks


def test_buckets_follow_the_longest_length_and_labels_the_configuration() -> None:
    text = Metrics(
        spec_of("0.33.0", max_model_len=6000, block_size=128, kv_cache_dtype="fp8"), created=1.0
    ).exposition()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    bounds = [s.labels["le"] for s in families["vllm:request_prompt_tokens"].samples if "le" in s.labels]
    assert bounds == "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 5000.0 +Inf".split()
    info = families["vllm:cache_config_info"].samples[0].labels
    assert info["block_size"] == "128" and info["cache_dtype"] == "fp8" and info["kv_cache_layout"] == "LBHNC"
    assert "model_name" not in info and info["engine"] == "0"
    old = Metrics(spec_of("0.29.0"), created=1.0).exposition()
    assert "kv_cache_layout" not in old
    for family in families.values():
        for sample in family.samples:
            if family.name not in ("vllm:cache_config_info", "vllm:admission_rejections"):
                assert sample.labels["model_name"] == "lockstep-demo/tiny" and sample.labels["engine"] == "0"


def test_prefill_and_decode_tell_their_own_half() -> None:
    async def scenario() -> None:
        prompt = "the quick brown fox " * 40
        async with cluster(pod("p", "prefill", 1), pod("d", "decode", 2)) as c:
            for number in range(3):
                await c.text("d", f"{number}{prompt}", via="p", max_tokens=5)
            prefill, decode = await c.metrics("p"), await c.metrics("d")
            assert prefill["vllm:generation_tokens_total", ""] == 3
            assert decode["vllm:generation_tokens_total", ""] == 15
            assert prefill["vllm:request_time_per_output_token_seconds_sum", ""] == 0
            assert decode["vllm:inter_token_latency_seconds_count", ""] == 12
            # Queueing on decode includes the reading of KV; on prefill there was none.
            assert prefill["vllm:request_queue_time_seconds_sum", ""] == 0
            fetch = decode["vllm:nixl_xfer_time_seconds_sum", ""]
            assert decode["vllm:request_queue_time_seconds_sum", ""] >= fetch > 0
            assert decode["vllm:external_prefix_cache_hits_total", ""] == 3 * 201

    asyncio.run(scenario())


def test_a_scrape_costs_little() -> None:
    metrics = Metrics(spec_of("0.33.0", max_model_len=131072), created=1.0)
    spent = []
    for _ in range(20):
        for family in list(metrics._families.values()):
            _touch(metrics, family)
        start = time.perf_counter()
        metrics.exposition()
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.02


def _touch(metrics: Metrics, family: Family) -> None:
    if family.kind == "histogram":
        metrics.observe(family.name, 1.0)
    elif family.values:
        metrics.count(family.name, 1, family.values[0])
