"""Counting events so that nothing is lost, doubled or taken from an earlier incarnation (a real Prometheus counts)."""

from __future__ import annotations

import pytest

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.measured import FEW_SCRAPES, HISTORY_SHORT, SINCE_START, State
from tests.controlplane.metrics.story import WINDOW, Story, growing

pytestmark = pytest.mark.rig
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
FINISHED = "vllm:request_success_total"


def test_the_first_scrape_of_a_young_pod_counts(story: Story) -> None:
    """It had failed seven times before anybody looked: no increase ever shows that."""
    also = story.pod("p", "prefill", "aaaa1111", since=60)
    also(EXPIRED, 7)
    seen = story.one("expired_leases", began={"aaaa1111": 70})
    assert (seen.state, seen.value, seen.window_s) == (State.VALUE, 7, 70)
    assert SINCE_START in seen.notes


def test_a_young_pod_among_old_ones_is_read_from_its_start_and_they_are_not(story: Story) -> None:
    old = story.pod("old", "prefill", "aaaa1111", since=900)
    old(EXPIRED, growing(0.1, since=900, first=5000))
    young = story.pod("young", "prefill", "aaaa1111", since=60)
    young(EXPIRED, 40)
    seen = story.one("expired_leases")
    assert seen.value == pytest.approx(0.1 * WINDOW + 40, rel=0.02)
    assert SINCE_START not in seen.notes


def test_a_young_pod_that_is_gone_again_still_counts(story: Story) -> None:
    story.pod("alive", "prefill", "aaaa1111", since=60)(EXPIRED, 0)
    gone = story.pod("gone", "prefill", "aaaa1111", since=75, until=45, ends=True)
    gone(EXPIRED, 9)
    assert story.one("expired_leases", began={"aaaa1111": 80}).value == 9


def test_a_restart_of_a_young_pod_does_not_forget_what_was_before_it(story: Story) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=90)
    also(EXPIRED, lambda age: 3.0 + (90 - age) if age > 45 else 1.0)  # to 33, then a new process
    seen = story.one("expired_leases", began={"aaaa1111": 100})
    assert seen.value is not None and seen.value >= 30


def test_one_of_two_pods_restarts_and_the_sum_neither_jumps_nor_falls(story: Story) -> None:
    """Rate, then sum: the sum itself would have fallen, and its rate taken that for a restart of everything."""
    story.pod("a", "prefill", "aaaa1111", since=900)(EXPIRED, growing(1, since=900, first=100_000))
    restarted = story.pod("b", "prefill", "aaaa1111", since=900)
    restarted(EXPIRED, lambda age: 50_000 + (900 - age) if age > 60 else 60 - age)
    seen = story.one("expired_leases")
    assert seen.value == pytest.approx(2 * WINDOW, rel=0.15)


def test_counts_of_an_earlier_incarnation_with_the_same_pods_do_not_count(story: Story) -> None:
    """A restore brings label and pod names back. The old pods' counters stand in the same series."""
    story.pod("p", "prefill", "aaaa1111", since=600, until=200)(EXPIRED, growing(10, since=600))
    story.pod("p", "prefill", "aaaa1111", since=90)(EXPIRED, growing(0.1, since=90, first=2))
    seen = story.one("expired_leases", began={"aaaa1111": 95})
    assert seen.value == pytest.approx(11)
    assert seen.window_s == 95


def test_counts_stay_out_also_where_the_window_reaches_before_the_incarnation(story: Story) -> None:
    """Young enough to be read raw, with the earlier incarnation's last scrape inside two windows."""
    story.pod("p", "decode", "aaaa1111", since=400, until=215)(FINISHED, 900, finished_reason="error")
    story.pod("p", "decode", "aaaa1111", since=180)(FINISHED, 0, finished_reason="error")
    also = story.pod("q", "decode", "aaaa1111", since=180)
    also(FINISHED, growing(2, since=180), finished_reason="stop")
    also(FINISHED, 0, finished_reason="error")
    seen = story.one("error_ratio", began={"aaaa1111": 200})
    assert (seen.value, seen.count) == (0.0, 360)


def test_a_gauge_of_an_earlier_incarnation_is_no_data(story: Story) -> None:
    """Without an end marker (remote write, federation) a sample lingers for five minutes."""
    story.pod("p", "decode", "aaaa1111", since=300, until=75)
    seen = story.one("requests_running", began={"aaaa1111": 60}, roles=["decode"])
    assert (seen.state, seen.value) == (State.NO_DATA, None)
    assert "since it began" in seen.reason


def test_a_gauge_of_the_earlier_incarnation_is_not_added_to_the_present_one(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=300, until=75)
    story.pod("q", "decode", "aaaa1111", since=45)
    assert story.one("requests_running", began={"aaaa1111": 60}).value == 1


def test_a_gauge_that_only_some_pods_still_report_counts_only_those(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900)
    story.pod("lingers", "decode", "aaaa1111", since=900, until=150)
    assert story.one("requests_running").value == 1


def test_a_source_that_remembers_too_little_says_so_and_does_not_show_lifetimes(story: Story) -> None:
    """Pods an hour old, a Prometheus that began to scrape them a minute ago: raw values would be an hour's."""
    also = story.pod("p", "prefill", "aaaa1111", since=90)
    also(EXPIRED, growing(0.1, since=90, first=3600))
    seen = story.one("expired_leases", began={"aaaa1111": 3600})
    assert seen.value == pytest.approx(10, abs=2)
    assert HISTORY_SHORT in seen.notes


def test_processes_that_all_began_lately_in_an_old_incarnation_are_read_from_their_start(
    story: Story,
) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=90)
    also("process_start_time_seconds", story.now - 100)
    also(EXPIRED, 12)
    seen = story.one("expired_leases", began={"aaaa1111": 3600})
    assert (seen.value, SINCE_START in seen.notes) == (12, True)


def test_two_revisions_are_never_one_number(story: Story) -> None:
    story.pod("old", "decode", "aaaa1111", since=900)(
        FINISHED, growing(10, since=900), finished_reason="stop"
    )
    bad = story.pod("new", "decode", "bbbb2222", since=100)
    bad(FINISHED, growing(1, since=100), finished_reason="error")
    bad(FINISHED, growing(1, since=100), finished_reason="stop")
    story.pod("old", "decode", "aaaa1111", since=900, anchor="")(FINISHED, 0, finished_reason="error")
    began = {"aaaa1111": 3600.0, "bbbb2222": 110.0}
    seen = {one.revision: one for one in story.measure("error_ratio", began=began)}
    assert (seen["aaaa1111"].value, seen["bbbb2222"].value) == (0, 0.5)
    assert seen["bbbb2222"].count == pytest.approx(200, abs=25)


def test_roles_are_apart_and_one_that_nobody_scrapes_is_no_data(story: Story) -> None:
    story.pod("d", "decode", "aaaa1111", since=900)
    story.pod("p0", "prefill", "aaaa1111", since=900)
    story.pod("p1", "prefill", "aaaa1111", since=900)
    found = story.measure("requests_running", roles=["decode", "encode", "prefill"])
    assert [(one.role, one.state, one.value) for one in found] == [
        ("encode", State.NO_DATA, None),
        ("decode", State.VALUE, 1),
        ("prefill", State.VALUE, 2),
    ]


def test_ranks_of_a_pod_are_summed_usage_is_averaged_and_a_group_counts_once(story: Story) -> None:
    """Data-parallel pods have a series for each rank."""
    for rank, (waiting, usage) in enumerate([(3, 0.2), (5, 0.6)]):
        also = story.pod("dp", "decode", "aaaa1111", since=900, engine=str(rank))
        also("vllm:num_requests_waiting", waiting)
        also("vllm:kv_cache_usage_perc", usage)
    single = story.pod("single", "decode", "aaaa1111", since=900, engine="0")
    single("vllm:num_requests_waiting", 2)
    single("vllm:kv_cache_usage_perc", 0.7)
    assert story.one("requests_waiting").value == 10
    assert story.one("queue_per_group").value == 5
    assert story.one("kv_usage").value == pytest.approx(0.5)


def test_the_peak_is_the_highest_scrape_of_the_window(story: Story) -> None:
    also = story.pod("p", "decode", "aaaa1111", since=900)
    also("vllm:kv_cache_usage_perc", lambda age: {30: 0.95, 300: 0.99}.get(age, 0.4))
    assert story.one("kv_usage_peak").value == 0.95
    assert story.one("kv_usage").value == 0.4


def test_a_window_with_few_scrapes_says_so(story: Story) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=900)
    also(EXPIRED, growing(1, since=900))
    assert FEW_SCRAPES not in story.one("expired_leases").notes
    assert FEW_SCRAPES in story.one("expired_leases", window_s=45).notes


def test_an_old_pod_with_one_scrape_in_the_window_gives_no_number_instead_of_its_lifetime(
    story: Story,
) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=900)
    also(EXPIRED, growing(1, since=900, first=70_000))
    seen = story.one("expired_leases", window_s=10)
    assert (seen.state, seen.value) == (State.NO_DATA, None)
    assert "often enough" in seen.reason


def test_slices_can_be_read_apart(story: Story) -> None:
    story.pod("a", "decode", "aaaa1111", since=900, slice="0")
    story.pod("b", "decode", "aaaa1111", since=900, slice="1")
    assert story.one("requests_running", slice="1").value == 1
    assert story.one("requests_running").value == 2


def test_requests_that_each_pod_finished(story: Story) -> None:
    for pod, speed in (("p0", 1.0), ("p1", 3.0)):
        also = story.pod(pod, "prefill", "aaaa1111", since=900)
        also(FINISHED, growing(speed, since=900), finished_reason="length")
    found = {(one.labels or {})["pod"]: one.value for one in story.measure("finished_requests")}
    assert found == {"p0": pytest.approx(WINDOW, rel=0.01), "p1": pytest.approx(3 * WINDOW, rel=0.01)}


def test_bytes_on_one_role_and_tokens_on_another_make_one_number(story: Story) -> None:
    """Where prefill pushes, it counts the bytes, and decode the tokens."""
    push = story.pod("p", "prefill", "aaaa1111", since=900)
    push("vllm:nixl_bytes_transferred_sum", growing(131072 * 50, since=900))
    pull = story.pod("d", "decode", "aaaa1111", since=900)
    pull("vllm:prompt_tokens_by_source_total", growing(50, since=900), source="external_kv_transfer")
    pull("vllm:prompt_tokens_by_source_total", growing(9, since=900), source="local_compute")
    seen = story.one("transfer_bytes_per_token")
    assert (seen.role, seen.value) == ("", pytest.approx(131072))
    share = next(one for one in story.measure("disaggregated_share") if one.role == "decode")
    assert share.value == pytest.approx(50 / 59)
    local = next(one for one in story.measure("local_compute_share") if one.role == "decode")
    assert local.value == pytest.approx(9 / 59)


def test_names_with_quotes_stay_inside_their_quotes(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=900)
    for hostile in ('x"} or vector(1) or up{a="', "back\\slash", 'a"|.+|"', "line\nbreak"):
        assert story.one("requests_running", set=hostile).state is State.NO_DATA
        assert story.one("requests_running", began={hostile: 900.0}).state is State.NO_DATA


def test_counts_from_a_moment_on_are_no_lifetimes_where_the_source_remembers_too_little(story: Story) -> None:
    """Pods an hour old, scraped for a minute, and asked for what happened in the last half minute."""
    also = story.pod("p", "prefill", "aaaa1111", since=45)
    also(EXPIRED, growing(1, since=45, first=3600))
    revisions = [Incarnation("aaaa1111", story.now - 3600, counted_from=story.now - 60)]
    seen = story.one("expired_leases", revisions=revisions)
    assert seen.value is not None and seen.value < 100
    assert HISTORY_SHORT in seen.notes


def test_counts_from_a_moment_on_leave_out_what_was_before_it(story: Story) -> None:
    old = story.pod("old", "prefill", "aaaa1111", since=900)
    old(EXPIRED, growing(1, since=900, first=3600))
    story.pod("young", "prefill", "aaaa1111", since=45)(EXPIRED, 7)
    revisions = [Incarnation("aaaa1111", story.now - 3600, counted_from=story.now - 60)]
    assert story.one("expired_leases", revisions=revisions).value == 45 + 7, "four scrapes, three steps"
