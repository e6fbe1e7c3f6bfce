"""Names: engines, prefixes, label names; every number can be asked for again by the text that comes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import pytest

from controlplane.metrics.measured import Measured, State
from controlplane.metrics.named import Kind
from controlplane.metrics.queries import QUERIES
from controlplane.metrics.reading import measure_all
from controlplane.metrics.source import LABELS, Source
from controlplane.metrics.survey import names_of
from tests.controlplane.metrics.story import EVERY, WINDOW, Story, growing, histogram

ENGINE_NAMES = [name for name, query in QUERIES.items() if not query.router]
# Proxies before a source often take no longer request line than 8 kB.
LONGEST_QUESTION = 7000


def everything(also: Callable[..., None], engine: str, since: float) -> None:
    """Tell every metric of an engine that a named query knows, growing."""
    for query in QUERIES.values():
        for variant in query.variants:
            if variant.engine != engine:
                continue
            if query.kind is Kind.HISTOGRAM:
                counts = lambda age: [(since - age) * share for share in (1, 3, 1, 0.01)]  # noqa: E731
                total = growing(2, since=since)
                histogram(also, variant.top.name, [0.1, 0.5, 2], counts, total)
                continue
            for term in (variant.top, *variant.bottom):
                gauge = query.kind in (Kind.SUM, Kind.MEAN, Kind.PER_POD, Kind.PEAK)
                labels = dict(
                    part.split("=", 1) for part in term.where.split(",") if "=~" not in part and part
                )
                value = 0.4 if gauge else growing(3, since=since)
                also(term.name, value, **{name: text.strip('"') for name, text in labels.items()})


@pytest.mark.rig
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_each_engine_answers_what_it_exposes_and_the_rest_is_not_exposed(story: Story, engine: str) -> None:
    anchor = {
        "vllm": "vllm:num_requests_running",
        "sglang": "sglang:num_running_reqs",
        "trtllm": "trtllm_kv_cache_utilization",
    }[engine]
    also = story.pod("p", "decode", "aaaa1111", since=900, anchor=anchor)
    everything(also, engine, 900)
    for name in ENGINE_NAMES:
        known = any(variant.engine == engine for variant in QUERIES[name].variants)
        wanted = State.VALUE if known or name == "freshness" else State.NOT_EXPOSED
        assert {one.state for one in story.measure(name)} == {wanted}, name


@pytest.mark.rig
@pytest.mark.parametrize("mark", [":", "_"])
def test_sglang_in_both_spellings_in_our_units(story: Story, mark: str) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=60, anchor=f"sglang{mark}num_running_reqs")
    name = f"sglang{mark}kv_transfer_latency_ms"
    histogram(also, name, [10, 20], lambda age: [0, 100, 0], lambda age: 1500)
    p50, mean = story.measure("transfer_time", began={"aaaa1111": 70}, stats=["p50", "mean"])
    assert (p50.value, mean.value) == (pytest.approx(0.015), 0.015)
    assert (p50.unit, p50.engine, p50.bounds) == ("seconds", "sglang", (0.01, 0.02))


@pytest.mark.rig
def test_a_source_with_a_prefix_and_label_names_of_its_own(story: Story) -> None:
    story.prefix = "kserve_"
    labels = {
        "namespace": "kubernetes_namespace",
        "set": "llm_isvc_name",
        "role": "llm_isvc_role",
        "revision": "disaggregatedset_x_k8s_io_revision",
        "pod": "pod_name",
        "slice": "slice",
    }
    story.rename = labels
    also = story.pod("p", "decode", "aaaa1111", since=900)
    everything(also, "vllm", 900)
    source = Source(prefix="kserve_", labels={**LABELS, **labels})
    for name in ENGINE_NAMES:
        found = story.measure(name, source=source)
        assert [one.state for one in found] == [State.VALUE] * len(found) and found, name
        assert story.one("requests_running").state is State.NO_DATA
    assert (story.measure("finished_requests", source=source)[0].labels or {}) == {"pod": "p"}


def asked_again(story: Story, found: Iterable[Measured]) -> None:
    """Ask for each number by its own text; it comes back among what that gives."""
    for one in found:
        assert one.state is State.VALUE, one
        values = [series.value for series in story.client.instant(one.query, one.at).series]
        assert one.value == pytest.approx(
            min(values, key=lambda value: abs((value or 0) - (one.value or 0)))
        ), one
        assert len(quote(one.query)) < LONGEST_QUESTION, one.name


@pytest.mark.rig
@pytest.mark.parametrize("began", [3600.0, 200.0])
def test_every_number_comes_with_a_text_that_gives_it(story: Story, began: float) -> None:
    since = min(900.0, began - began % EVERY)
    everything(story.pod("p", "decode", "aaaa1111", since=since), "vllm", since)
    also = story.router(since=since)
    also.__call__(
        "llm_d_epp_scheduler_attempts_total", growing(1, since=since), endpoint_name="p", status="success"
    )
    told: dict[str, Any] = {"decision_type": "decode-only", "revision": "aaaa1111", "mode": "sum"}
    for query in QUERIES.values():
        for variant in query.variants:
            if variant.engine == "llm-d-router" and query.kind is not Kind.ATTEMPTS:
                labels = {label: told.get(label, "x") for label in query.by} | {"streaming": "true"}
                name = f"llm_d_epp_{variant.top.name}"
                if query.kind is Kind.HISTOGRAM:
                    histogram(
                        also,
                        name,
                        [0.1, 1],
                        lambda age: [since - age, 9, 9],
                        growing(1, since=since),
                        **labels,
                    )
                else:
                    also(name, growing(2, since=since), **labels)
    also("llm_d_epp_disagg_decision_total", growing(2, since=since), decision_type="prefill-decode")
    also("llm_d_epp_request_total", growing(4, since=since), model_name="m")
    also("llm_d_epp_flow_control_pool_saturation", 0.5, stage="effective")
    found = story.measure_all(list(QUERIES), began={"aaaa1111": began})
    assert {one.name for one in found} == set(QUERIES)
    asked_again(story, found)


class Recorder:
    """A client that keeps the questions."""

    def __init__(self, story: Story) -> None:
        self.story, self.asked = story, list[str]()

    def instant(self, query: str, at: float | None = None) -> Any:
        self.asked.append(query)
        return self.story.client.instant(query, at)


@pytest.mark.rig
def test_a_look_at_everything_is_few_and_short_questions(story: Story) -> None:
    everything(story.pod("p", "decode", "aaaa1111", since=900), "vllm", 900)
    everything(story.pod("q", "decode", "bbbb2222", since=900), "vllm", 900)
    story.router(since=900)
    story.write()
    recorder: Any = Recorder(story)
    revisions = [story.incarnation(label, 3600) for label in ("aaaa1111", "bbbb2222")]
    place = {"namespace": story.namespace, "set": "chat", "router": "chat-epp", "now": story.now}
    measure_all(recorder, Source(), list(QUERIES), window_s=WINDOW, revisions=revisions, **place)
    assert len(recorder.asked) <= 4 + 2 * len(ENGINE_NAMES)
    longest = max(recorder.asked, key=len)
    assert len(quote(longest)) < LONGEST_QUESTION, longest


def test_the_engines_of_the_demo_expose_what_is_asked_for() -> None:
    """They carry the metric names of the real vLLM by version; counters get _total on the wire."""
    from deploy.demo.engines.families import FAMILIES

    exposed = {family.name for family in FAMILIES}
    for query in QUERIES.values():
        names = [
            name.removesuffix("_total").removesuffix("_count").removesuffix("_sum")
            for variant in query.variants
            if variant.engine == "vllm" and not variant.until and "mooncake" not in variant.top.name
            for name in names_of(query, variant)
        ]
        assert set(names) <= exposed, query.name


def test_every_query_says_what_it_means() -> None:
    for name, query in QUERIES.items():
        assert query.name == name and name.replace("_", "").isalnum()
        assert query.meaning.endswith(".") and query.unit in ("count", "ratio", "seconds", "bytes")
        assert query.variants or query.kind is Kind.FRESHNESS
        for variant in query.variants:
            assert bool(variant.bottom) == (query.kind is Kind.RATIO), name
