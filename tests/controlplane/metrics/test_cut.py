"""Numbers that count from a moment in the life of an incarnation: a gate's window that was begun anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.metrics.measured import SINCE_START, Measured, State
from tests.controlplane.metrics.story import EVERY, WINDOW, Story, growing, histogram

pytestmark = pytest.mark.rig
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
ATTEMPTS = "llm_d_epp_scheduler_attempts_total"


def counted(story: Story, name: str, *, began: float, cut: float) -> list[Measured]:
    """One number of an incarnation that began so long ago, counted from `cut` seconds ago."""
    revision = replace(story.incarnation("aaaa1111", began), counted_from=story.now - cut)
    return story.measure(name, revisions=[revision])


@pytest.mark.parametrize("began", [130.0, 200.0, 900.0])
def test_what_a_pod_counted_before_the_cut_is_left_out(story: Story, began: float) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=120)
    also(EXPIRED, lambda age: 500.0 if age > 60 else 500.0 + (60 - age))
    (seen,) = counted(story, "expired_leases", began=began, cut=60)
    assert (seen.state, seen.window_s) == (State.VALUE, 60)
    assert seen.value == 60 - EVERY, "between the first and the last scrape, with nothing added"
    assert SINCE_START not in seen.notes


def test_a_pod_that_came_after_the_cut_counts_from_its_start(story: Story) -> None:
    story.pod("old", "prefill", "aaaa1111", since=900)(EXPIRED, 1000)
    story.pod("new", "prefill", "aaaa1111", since=45)(EXPIRED, 7)
    (seen,) = counted(story, "expired_leases", began=900, cut=60)
    assert seen.value == 7


def test_a_cut_longer_ago_than_the_window_changes_nothing(story: Story) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=900)
    also(EXPIRED, growing(1, since=900, first=50))
    (seen,) = counted(story, "expired_leases", began=3600, cut=800)
    assert seen.value == WINDOW - EVERY


def test_right_after_the_cut_there_is_no_number(story: Story) -> None:
    story.pod("p", "prefill", "aaaa1111", since=900)(EXPIRED, growing(1, since=900))
    (seen,) = counted(story, "expired_leases", began=3600, cut=2)
    assert (seen.state, seen.value) == (State.NO_DATA, None)


def test_a_gauge_from_before_the_cut_is_no_data(story: Story) -> None:
    story.pod("p", "decode", "aaaa1111", since=300, until=75)
    (seen,) = counted(story, "requests_running", began=900, cut=60)
    assert seen.state is State.NO_DATA


def test_what_was_slow_before_the_cut_is_not_in_the_quantiles_after_it(story: Story) -> None:
    """Over few scrapes Prometheus' own increase adds to the bucket of all and hardly to that of the fast ones, which
    was near zero: a twentieth of what never happened would be the slowest."""
    also = story.pod("p", "decode", "aaaa1111", since=900)

    def fast(age: float) -> float:
        return 0.0 if age > 45 else (45 - age) * 4

    histogram(
        also, "vllm:time_to_first_token_seconds", [0.1, 1.0, 10.0],
        lambda age: [fast(age), 0.0, 500.0, 0.0], lambda age: 0.05 * fast(age) + 2500,
    )  # fmt: skip
    seen = {one.stat: one for one in counted(story, "ttft", began=3600, cut=59)}
    assert seen["count"].value == 180 and seen["p99"].value is not None and seen["p99"].value <= 0.1
    assert seen["mean"].value == pytest.approx(0.05)


def test_a_restart_after_the_cut_loses_nothing_that_was_scraped(story: Story) -> None:
    also = story.pod("p", "prefill", "aaaa1111", since=900)
    also(EXPIRED, lambda age: 700.0 + (900 - age) if age > 30 else 30 - age)
    (seen,) = counted(story, "expired_leases", began=3600, cut=89)
    assert seen.value is not None and 60 <= seen.value <= 95


def test_picks_before_the_cut_are_left_out_of_young_revisions_too(story: Story) -> None:
    """Shares of two revisions are comparable only over one window."""
    story.pod("p-0", "decode", "aaaa1111", since=150)
    picked = growing(2, since=150)
    story.router(since=900)(ATTEMPTS, picked, since=150, endpoint_name="p-0", status="success")
    (seen,) = counted(story, "scheduler_attempts", began=160, cut=90)
    assert seen.value == 2 * (90 - EVERY)
    assert SINCE_START not in seen.notes
