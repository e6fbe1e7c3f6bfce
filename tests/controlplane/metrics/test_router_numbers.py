"""What the router tells: picks joined to pods, planned shares, decisions, queues, outcomes, refusals."""

from __future__ import annotations

import pytest

from controlplane.metrics.measured import HISTORY_SHORT, State
from controlplane.metrics.source import Source
from tests.controlplane.metrics.story import WINDOW, Story, growing, histogram

pytestmark = pytest.mark.rig
ATTEMPTS = "llm_d_epp_scheduler_attempts_total"


def picks(story: Story, **more: object) -> dict[tuple[str, str, str], float]:
    """(revision, role, endpoint) → count."""
    found = story.measure("scheduler_attempts", **more)
    return {
        (one.revision, one.role, (one.labels or {}).get("endpoint", "")): one.value
        for one in found
        if one.value is not None
    }


class TestAttempts:
    def test_each_endpoint_has_role_and_revision_of_its_pod(self, story: Story) -> None:
        story.pod("old-0", "decode", "aaaa1111", since=900)
        story.pod("new-0", "decode", "bbbb2222", since=900)
        also = story.router(since=900)
        for pod, speed in (("old-0", 3.0), ("new-0", 1.0)):
            also(ATTEMPTS, growing(speed, since=900), endpoint_name=pod, status="success", port="8000")
        also(ATTEMPTS, growing(5, since=900), endpoint_name="", status="failure", port="")
        assert picks(story, began={"aaaa1111": 3600.0, "bbbb2222": 3600.0}) == {
            ("aaaa1111", "decode", "old-0"): pytest.approx(3 * WINDOW, rel=0.01),
            ("bbbb2222", "decode", "new-0"): pytest.approx(WINDOW, rel=0.01),
        }

    def test_ranks_of_a_pod_are_one_endpoint(self, story: Story) -> None:
        story.pod("dp-0", "decode", "aaaa1111", since=900)
        also = story.router(since=900)
        for rank in ("0", "1"):
            endpoint = {"endpoint_name": f"dp-0-rank-{rank}", "port": f"820{rank}"}
            also(ATTEMPTS, growing(1, since=900), status="success", **endpoint)
        assert picks(story) == {("aaaa1111", "decode", "dp-0"): pytest.approx(2 * WINDOW, rel=0.01)}

    def test_an_endpoint_that_is_no_pod_of_the_set_is_kept_without_a_revision(self, story: Story) -> None:
        """Dropping it would make shares of the rest add up to 1."""
        story.pod("p-0", "decode", "aaaa1111", since=900)
        also = story.router(since=900)
        for pod in ("p-0", "stranger-0"):
            also(ATTEMPTS, growing(1, since=900), endpoint_name=pod, status="success")
        assert set(picks(story)) == {("aaaa1111", "decode", "p-0"), ("", "", "stranger-0")}

    def test_a_pod_that_went_away_in_the_window_is_still_known(self, story: Story) -> None:
        story.pod("left-0", "decode", "aaaa1111", since=900)
        story.pod("gone-0", "decode", "aaaa1111", since=900, until=60, ends=True)
        also = story.router(since=900)
        for pod in ("left-0", "gone-0"):
            also(ATTEMPTS, growing(1, since=900), endpoint_name=pod, status="success")
        assert {role for _, role, _ in picks(story)} == {"decode"}

    def test_picks_of_an_earlier_incarnations_pod_of_the_same_name_do_not_count(self, story: Story) -> None:
        """The router lived through it: its counter goes on as before."""
        story.pod("p-0", "decode", "aaaa1111", since=90)
        also = story.router(since=900)
        also(
            ATTEMPTS,
            growing(1, since=900, first=9000),
            endpoint_name="p-0",
            status="success",
        )
        seen = picks(story, began={"aaaa1111": 90.0})
        assert seen == {("aaaa1111", "decode", "p-0"): pytest.approx(90, abs=1)}

    def test_an_endpoint_born_in_the_window_counts_from_its_first_pick(self, story: Story) -> None:
        story.pod("p-0", "decode", "aaaa1111", since=60)
        also = story.router(since=900)
        also(ATTEMPTS, 25, endpoint_name="p-0", status="success", since=45)
        assert picks(story, began={"aaaa1111": 70.0}) == {("aaaa1111", "decode", "p-0"): 25}

    def test_a_revision_that_nobody_is_sent_to_has_zero_picks(self, story: Story) -> None:
        story.pod("old-0", "decode", "aaaa1111", since=900)
        story.pod("new-0", "decode", "bbbb2222", since=900)
        also = story.router(since=900)
        also(ATTEMPTS, growing(1, since=900), endpoint_name="old-0", status="success")
        seen = picks(story, began={"aaaa1111": 3600.0, "bbbb2222": 3600.0})
        assert seen["bbbb2222", "", ""] == 0

    def test_a_pod_name_under_two_roles_in_one_window_does_not_break_the_question(self, story: Story) -> None:
        """A join with two partners for one pod is refused as a whole."""
        story.pod("p-0", "prefill", "aaaa1111", since=900, until=90, ends=True)
        story.pod("p-0", "decode", "aaaa1111", since=75)
        also = story.router(since=900)
        also(ATTEMPTS, growing(1, since=900), endpoint_name="p-0", status="success")
        assert len(picks(story)) == 1

    def test_without_any_known_pod_everything_is_without_a_revision(self, story: Story) -> None:
        also = story.router(since=900)
        also(ATTEMPTS, growing(1, since=900), endpoint_name="p-0", status="success")
        found = story.measure("scheduler_attempts")
        assert [(one.revision, one.state) for one in found] == [
            ("aaaa1111", State.NO_DATA),
            ("", State.VALUE),
        ]

    def test_the_older_endpoint_picker_has_other_names(self, story: Story) -> None:
        story.pod("p-0", "decode", "aaaa1111", since=900)
        also = story.router(since=900, anchor="inference_extension_info")
        also(
            "inference_extension_scheduler_attempts_total",
            growing(1, since=900),
            pod_name="p-0",
            status="success",
        )
        # The router's own pod has the label pod too; its metric calls the endpoint pod_name.
        assert picks(story) == {("aaaa1111", "decode", "p-0"): pytest.approx(WINDOW, rel=0.01)}

    def test_a_router_with_old_names_beside_the_new_ones_counts_once(self, story: Story) -> None:
        story.pod("p-0", "decode", "aaaa1111", since=900)
        also = story.router(since=900)
        also("inference_extension_info", 1)
        also(ATTEMPTS, growing(1, since=900), endpoint_name="p-0", status="success")
        old = "inference_extension_scheduler_attempts_total"
        also(old, growing(1, since=900), pod_name="p-0", status="success")
        assert picks(story) == {("aaaa1111", "decode", "p-0"): pytest.approx(WINDOW, rel=0.01)}


class TestShares:
    GATING = "llm_d_epp_disaggregatedset_revision_gating_share"

    def test_the_planned_share_of_each_revision_and_of_one_that_the_router_lost(self, story: Story) -> None:
        also = story.router(since=900)
        also(self.GATING, 0.8, mode="max-role", revision="aaaa1111")
        also(self.GATING, 0.2, mode="max-role", revision="bbbb2222")
        began = {"aaaa1111": 3600.0, "bbbb2222": 300.0, "cccc3333": 3600.0}
        found = story.measure("gating_share", began=began)
        assert [(one.revision, one.state, one.value) for one in found] == [
            ("aaaa1111", State.VALUE, 0.8),
            ("bbbb2222", State.VALUE, 0.2),
            ("cccc3333", State.NO_DATA, None),
        ]
        assert found[0].labels == {"mode": "max-role"}

    def test_what_was_said_before_an_incarnation_began_is_not_said_of_it(self, story: Story) -> None:
        labels = {"pod": "chat-epp-7d9f-abcde", "instance": "i"}
        story.scraped("llm_d_epp_info", lambda _: 1.0, since=900, until=75, **labels)
        said = {"mode": "sum", "revision": "aaaa1111"} | labels
        story.scraped(self.GATING, lambda _: 0.7, since=900, until=75, **said)
        assert story.one("gating_share", began={"aaaa1111": 60.0}).state is State.NO_DATA
        assert story.one("gating_share", began={"aaaa1111": 90.0}).value == 0.7

    def test_two_replicas_that_say_the_same_are_one_number(self, story: Story) -> None:
        for pod in ("chat-epp-7d9f-aaaaa", "chat-epp-7d9f-bbbbb"):
            story.router(since=900, pod=pod)(self.GATING, 1, mode="sum", revision="aaaa1111")
        assert story.one("gating_share").value == 1

    def test_how_many_skip_prefill(self, story: Story) -> None:
        also = story.router(since=900)
        name = "llm_d_epp_disagg_decision_total"
        for kind, speed in (("prefill-decode", 8.0), ("decode-only", 1.0), ("encode-decode", 1.0)):
            also(name, growing(speed, since=900), decision_type=kind, plugin_name="x", model_name="m")
        found = {(one.labels or {})["decision_type"]: one.value for one in story.measure("disagg_decisions")}
        assert found == {
            "prefill-decode": pytest.approx(8 * WINDOW),
            "decode-only": pytest.approx(WINDOW),
            "encode-decode": pytest.approx(WINDOW),
        }
        assert story.one("decode_only_share").value == pytest.approx(0.2)


def test_flow_control_by_priority(story: Story) -> None:
    also = story.router(since=900)
    also("llm_d_epp_flow_control_pool_saturation", 1, stage="effective")
    for tenant, size in (("acme", 3), ("globex", 4)):
        also("llm_d_epp_flow_control_queue_size", size, priority="0", fairness_id=tenant)
    also("llm_d_epp_flow_control_queue_size", 1, priority="100", fairness_id="acme")
    name = "llm_d_epp_flow_control_requests_total"
    also(name, growing(4, since=900), outcome="Dispatched", priority="0", inference_pool="chat")
    also(name, growing(1, since=900), outcome="RejectedCapacity", priority="0", inference_pool="chat")
    queue = {(one.labels or {})["priority"]: one.value for one in story.measure("flow_queue")}
    assert queue == {"0": 7, "100": 1}
    outcomes = {(one.labels or {})["outcome"]: one.value for one in story.measure("flow_outcomes")}
    assert outcomes == {"Dispatched": pytest.approx(4 * WINDOW), "RejectedCapacity": pytest.approx(WINDOW)}


def test_errors_by_code_counted_from_the_first_one(story: Story) -> None:
    """The series is born with its first error, at 1: no increase shows that one."""
    also = story.router(since=900)
    also("llm_d_epp_request_total", growing(2, since=900), model_name="m")
    also("llm_d_epp_request_error_total", 1, error_code="ServiceUnavailable", since=60)
    codes = {(one.labels or {})["error_code"]: one.value for one in story.measure("router_error_codes")}
    assert codes == {"ServiceUnavailable": 1}
    assert story.one("router_error_ratio").value == pytest.approx(1 / (2 * WINDOW), rel=0.02)


def test_pinned_requests_without_a_match(story: Story) -> None:
    also = story.router(since=900)
    name = "llm_d_epp_disaggregatedset_strict_header_no_match_total"
    also(name, growing(0.1, since=900), selector="revision")
    seen = story.one("strict_header_no_match")
    assert (seen.labels, seen.value) == ({"selector": "revision"}, pytest.approx(12))


def test_users_wait_is_that_of_streaming_requests(story: Story) -> None:
    """Without streaming the first token comes with the last."""
    also = story.router(since=60)
    also("process_start_time_seconds", story.now - 65)
    bounds = [0.2, 1.0, 60.0]
    name = "llm_d_epp_request_ttft_seconds"
    histogram(also, name, bounds, lambda age: [0, 200, 0, 0], lambda age: 100, streaming="true")
    histogram(also, name, bounds, lambda age: [0, 0, 500, 0], lambda age: 9000, streaming="false")
    p50, mean = story.measure("user_ttft", stats=["p50", "mean"])
    assert (p50.value, mean.value, p50.count) == (pytest.approx(0.6), 0.5, 200)


def test_ready_endpoints(story: Story) -> None:
    also = story.router(since=900)
    assert story.one("ready_endpoints").value == 0
    also("llm_d_epp_ready_endpoints", 6, name="chat")
    assert story.one("ready_endpoints").value == 6


def test_only_the_pods_of_this_router_are_asked(story: Story) -> None:
    story.router(since=900)("llm_d_epp_ready_endpoints", 6)
    story.router(since=900, pod="chat-epp-canary-7d9f-abcde")("llm_d_epp_ready_endpoints", 2)
    story.router(since=900, pod="other-epp-7d9f-abcde")("llm_d_epp_ready_endpoints", 4)
    assert story.one("ready_endpoints").value == 6
    assert story.one("ready_endpoints", router="chat-epp-canary").value == 2


def test_a_router_that_does_not_say_when_it_began_is_not_read_by_its_lifetime(story: Story) -> None:
    also = story.router(since=60)
    also("llm_d_epp_request_error_total", growing(0.5, since=60, first=80_000), error_code="Unavailable")
    seen = story.one("router_error_codes")
    assert seen.value is not None and seen.value < 100
    assert HISTORY_SHORT in seen.notes


def test_another_prefix_of_the_router(story: Story) -> None:
    also = story.router(since=900, anchor="llm_d_router_epp_info")
    also("llm_d_router_epp_ready_endpoints", 5)
    assert story.one("ready_endpoints", source=Source(router_prefix="llm_d_router_epp_")).value == 5
    assert story.one("ready_endpoints").state is State.NO_DATA
