"""Four states that look alike from outside: a number, no traffic, no data, not exposed."""

from __future__ import annotations

import pytest

from controlplane.metrics.measured import FEW_SAMPLES, State
from tests.controlplane.metrics.story import Story, growing, histogram

pytestmark = pytest.mark.rig
FINISHED = "vllm:request_success_total"
TTFT = "vllm:time_to_first_token_seconds"


def idle(age: float) -> list[float]:
    return [5, 5, 0]


def test_a_pod_without_requests_is_no_traffic_and_neither_zero_nor_nan(story: Story) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=900)
    for reason in ("stop", "error"):
        also(FINISHED, 40, finished_reason=reason)
    histogram(also, TTFT, [0.1, 1], idle, lambda age: 3)
    found = [story.one("error_ratio"), *story.measure("ttft", stats=["p95", "mean"])]
    assert [(one.state, one.value, one.count) for one in found] == [(State.NO_TRAFFIC, None, 0)] * 3
    assert not any(one.enough for one in found)
    assert story.one("ttft", stats=["count"]).value == 0


def test_pods_that_nobody_scrapes_are_no_data(story: Story) -> None:
    seen = story.one("error_ratio")
    assert (seen.state, seen.age_s) == (State.NO_DATA, None)
    assert story.one("scheduler_attempts", began={}).state is State.NO_DATA


def test_a_metric_that_this_version_lacks_is_not_exposed_and_says_since_when(story: Story) -> None:
    """0.16 has no prompt tokens by source. The pods are scraped all the same."""
    story.pod("p", "decode", "aaaa1111", since=900)
    seen = story.one("disaggregated_share")
    assert (seen.state, seen.engine, seen.age_s) == (State.NOT_EXPOSED, "vllm", 0)
    assert "from 0.17" in seen.reason


def test_a_connector_that_is_not_configured_is_not_exposed_and_not_zero_failures(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900)
    assert story.one("failed_transfers_ratio").state is State.NOT_EXPOSED


def test_a_version_that_does_not_tell_errors_apart_has_no_error_ratio_of_zero(story: Story) -> None:
    """Series of all reasons are made at start, so one that is missing is not counted by this version."""
    also = story.pod("p", "decode", "aaaa1111", since=900)
    for reason in ("stop", "length", "abort"):
        also(FINISHED, growing(1, since=900), finished_reason=reason)
    seen = story.one("error_ratio")
    assert (seen.state, seen.value) == (State.NOT_EXPOSED, None)
    assert "tell this part" in seen.reason


def test_the_first_query_of_a_fresh_incarnation_is_no_data(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900)
    assert story.one("requests_running", began={"aaaa1111": 0.5}).state is State.NO_DATA


def test_not_a_number_stays_out(story: Story) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=900)
    also("vllm:kv_cache_usage_perc", float("nan"))
    seen = story.one("kv_usage")
    assert (seen.state, seen.value) == (State.NO_DATA, None)


def test_few_samples_have_a_number_and_no_verdict(story: Story) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=60)
    also(FINISHED, 8, finished_reason="stop")
    also(FINISHED, 2, finished_reason="error")
    seen = story.one("error_ratio", began={"aaaa1111": 70})
    assert (seen.value, seen.count, seen.enough) == (0.2, 10, False)
    assert FEW_SAMPLES in seen.notes


def test_the_age_is_that_of_the_newest_scrape_on_the_sources_clock(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900, until=30)
    assert story.one("requests_running").age_s == 30


def test_freshness_tells_a_pod_whose_scrapes_stopped(story: Story) -> None:
    story.pod("good", "decode", "aaaa1111", since=900)
    story.pod("lingers", "decode", "aaaa1111", since=900, until=60)
    story.pod("ended", "decode", "aaaa1111", since=900, until=60, ends=True)
    found = {(one.labels or {})["pod"]: one.value for one in story.measure("freshness")}
    assert found == {"good": 0, "lingers": 60}


def test_counters_of_the_router_are_zero_before_their_first_event_where_it_is_scraped(story: Story) -> None:
    story.router(since=900)
    seen = story.one("router_error_codes")
    assert (seen.state, seen.value, seen.engine) == (State.VALUE, 0, "llm-d-router")
    assert story.one("router_error_ratio").state is State.NO_TRAFFIC
    assert story.one("user_ttft", stats=["p95"]).state is State.NO_TRAFFIC


def test_flow_control_that_is_off_is_not_an_empty_queue(story: Story) -> None:
    also = story.router(since=900)
    assert story.one("flow_queue").state is State.NOT_EXPOSED
    also("llm_d_epp_flow_control_pool_saturation", 0.1, stage="effective")
    assert (story.one("flow_queue").state, story.one("flow_queue").value) == (State.VALUE, 0)
    assert story.one("flow_outcomes").value == 0


def test_a_router_without_the_screener_has_no_pinned_refusals_to_tell(story: Story) -> None:
    also = story.router(since=900)
    assert story.one("strict_header_no_match").state is State.NOT_EXPOSED
    also("llm_d_epp_disaggregatedset_revision_gating_share", 1, mode="sum", revision="aaaa1111")
    assert story.one("strict_header_no_match").value == 0


def test_several_names_are_of_one_moment(story: Story) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=900)
    also(FINISHED, growing(1, since=900), finished_reason="stop")
    story.router(since=900)
    names = ["requests_running", "error_ratio", "router_error_codes"]
    found = story.measure_all(names)
    assert [one.name for one in found] == names
    assert {one.at for one in found} == {story.now}


def test_what_makes_no_sense_is_refused(story: Story) -> None:
    with pytest.raises(KeyError):
        story.measure("no_such_name")
    for wrong in ({"stats": ["p100"]}, {"stats": ["max"]}, {"window_s": 0}, {"set": ""}):
        with pytest.raises(ValueError):
            story.measure("ttft", **wrong)
    with pytest.raises(ValueError):
        story.measure("flow_queue", router="")
    with pytest.raises(ValueError):
        twice = [story.incarnation("aaaa1111", 900), story.incarnation("aaaa1111", 60)]
        story.measure("ttft", revisions=twice)


def test_evidence_is_plain_json(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900)
    facts = story.one("requests_running").as_facts()
    assert (facts["state"], facts["labels"], facts["value"]) == ("value", {}, 1)
