from __future__ import annotations

import pytest

from policy.chance import SplitMix64
from policy.shares import (
    Agreement,
    PathFacts,
    PlannedShares,
    PodCount,
    PodPlace,
    PoolFacts,
    RouteFacts,
    Screener,
    agree,
    measured_shares,
    planned_shares,
)

OLD, NEW = "7c9e41b2", "d03fa885"
DRAW = Screener("sum", ("decode",))
PLACES = {"old-d": PodPlace("llama", OLD, "decode"), "new-d": PodPlace("llama", NEW, "decode")}


def plan(old: int, new: int, screener: Screener | None = DRAW) -> PlannedShares:
    counts = tuple(
        PodCount(revision, role, count)
        for revision, count in ((OLD, old), (NEW, new))
        for role in ("prefill", "decode")
    )
    pool = PoolFacts("llama", counts, screener)
    return planned_shares(PathFacts((pool,), (RouteFacts("chat", (("llama", 1),)),)))


def compare(planned: PlannedShares, old: int, new: int) -> Agreement:
    return agree(planned, measured_shares({"old-d": old, "new-d": new}, PLACES))


def test_the_recorded_router_agrees_with_its_gauge() -> None:
    assert compare(plan(4, 1), 229, 71).verdict == "agree"


def test_pinned_clients_are_seen_in_many_requests_and_not_in_few() -> None:
    pinned = compare(plan(1, 1), 9_704, 8_536)
    assert pinned.verdict == "differ"
    assert "d03fa885 was planned 50 % and measured 46.8 % (8,536 of 18,240)" in pinned.sentence
    assert compare(plan(1, 1), 106, 94).verdict == "agree"


def test_few_requests_have_no_verdict() -> None:
    result = compare(plan(1, 1), 40, 10)
    assert result.verdict == "too-few-samples"
    assert result.sentence == "50 of 100 requests that a comparison needs."
    assert compare(plan(1, 1), 0, 0).verdict == "too-few-samples"


def test_one_request_where_none_may_go_is_a_difference_however_few() -> None:
    assert compare(plan(4, 0), 9, 1).verdict == "differ"
    assert compare(plan(4, 0), 100, 0).verdict == "agree"


def test_a_point_of_difference_in_a_million_requests_says_nothing_about_the_rule() -> None:
    assert compare(plan(1, 1), 507_000, 493_000).verdict == "agree"
    assert compare(plan(1, 1), 520_000, 480_000).verdict == "differ"


def test_where_nothing_draws_a_wider_range_agrees() -> None:
    assert compare(plan(1, 1), 5_800, 4_200).verdict == "differ"
    assert compare(plan(1, 1, None), 5_800, 4_200).verdict == "agree"
    assert compare(plan(1, 1, None), 7_000, 3_000).verdict == "differ"


def test_what_is_unknown_may_go_anywhere() -> None:
    counts = tuple(PodCount(revision, role, 1) for revision in (OLD, NEW) for role in ("prefill", "decode"))
    pool = PoolFacts("llama", counts, DRAW, router_ready=False, fail_open=True)
    shares = planned_shares(PathFacts((pool,), (RouteFacts("chat", (("llama", 1),)),)))
    assert compare(shares, 900, 100).verdict == "agree"


@pytest.mark.parametrize(("old", "new"), [(4, 1), (1, 1), (9, 1)])
def test_the_rule_itself_is_called_different_at_most_once_in_a_hundred(old: int, new: int) -> None:
    stream, planned, alarms = SplitMix64(old), plan(old, new), 0
    for _ in range(1_000):
        drawn = sum(stream.below(old + new) < new for _ in range(300))
        alarms += compare(planned, 300 - drawn, drawn).verdict == "differ"
    assert alarms <= 20
