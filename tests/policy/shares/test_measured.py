from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.shares import MeasuredShares, PodPlace, measured_shares

OLD, NEW = "7c9e41b2", "d03fa885"
PLACES = {
    "old-p-0": PodPlace("llama", OLD, "prefill"),
    "old-d-0": PodPlace("llama", OLD, "decode"),
    "old-d-1": PodPlace("llama", OLD, "decode"),
    "new-p-0": PodPlace("llama", NEW, "prefill"),
    "new-d-0": PodPlace("llama", NEW, "decode"),
}


def by_revision(shares: MeasuredShares) -> dict[str, tuple[int, float]]:
    return {lane.revision: (lane.count, lane.share) for lane in shares.lanes}


def by_edge(shares: MeasuredShares) -> dict[tuple[str, str], int]:
    return {(edge.revision, edge.kind): edge.count for edge in shares.edges}


def test_attempts_of_decode_pods_are_the_requests_of_their_revision() -> None:
    shares = measured_shares({"old-d-0": 129, "old-d-1": 100, "new-d-0": 71}, PLACES)
    assert shares.total == 300
    assert by_revision(shares) == {OLD: (229, pytest.approx(229 / 300)), NEW: (71, pytest.approx(71 / 300))}
    lane = next(lane for lane in shares.lanes if lane.revision == NEW)
    assert lane.low < 0.2 < lane.high


def test_ranks_of_one_pod_are_added_and_strangers_listed() -> None:
    shares = measured_shares({"old-d-0-rank-0": 10, "old-d-0-rank-1": 20, "gone-d-3": 5.4}, PLACES)
    assert by_revision(shares)[OLD][0] == 30
    assert shares.unmatched == (("gone-d-3", 5),)
    assert by_edge(shares)["", "unknown"] == 5


def test_a_pod_whose_role_cannot_decode_is_told() -> None:
    shares = measured_shares({"old-d-0": 10, "new-p-0": 2}, PLACES)
    assert shares.odd == (("new-p-0", 2),)
    assert by_edge(shares)["", "unknown"] == 2


def test_a_revision_without_requests_is_there_with_nothing() -> None:
    assert by_revision(measured_shares({"old-d-0": 10}, PLACES))[NEW] == (0, 0.0)


def test_decisions_tell_the_pool_and_split_a_revision_that_is_alone() -> None:
    decisions = {"prefill-decode": 90.0, "decode-only": 6.0, "encode-decode": 4.0}
    alone = measured_shares({"old-d-0": 1000}, PLACES, decisions=decisions)
    assert alone.skipped is not None and alone.skipped.share == pytest.approx(0.1)
    assert by_edge(alone) == {(OLD, "prefilled"): 900, (OLD, "decode-only"): 100}
    two = measured_shares({"old-d-0": 500, "new-d-0": 500}, PLACES, decisions=decisions)
    assert {edge.kind for edge in two.edges} == {"unsplit"}
    all_prefilled = measured_shares({"old-d-0": 5, "new-d-0": 5}, PLACES, decisions={"prefill-decode": 10})
    assert {edge.kind for edge in all_prefilled.edges} == {"prefilled"}


def test_engines_that_count_prefills_split_each_revision() -> None:
    shares = measured_shares(
        {"old-d-0": 100, "new-d-0": 50}, PLACES, prefilled={"old-p-0": 94, "new-p-0": 51, "gone-p-0": 3}
    )
    assert by_edge(shares) == {(OLD, "prefilled"): 94, (OLD, "decode-only"): 6, (NEW, "prefilled"): 50}
    assert shares.unmatched == (("gone-p-0", 3),)
    assert shares.total == 150


def test_no_requests_make_no_edges() -> None:
    shares = measured_shares({}, PLACES, decisions={})
    assert (shares.total, shares.edges) == (0, ())
    assert shares.skipped is not None and (shares.skipped.low, shares.skipped.high) == (0.0, 1.0)


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_a_count_that_is_none_is_refused(count: float) -> None:
    with pytest.raises(ValueError):
        measured_shares({"old-d-0": count}, PLACES)


COUNT = st.floats(0, 1e6)


@given(
    st.dictionaries(st.sampled_from([*PLACES, "stranger", "old-d-0-rank-3"]), COUNT),
    st.none() | st.dictionaries(st.sampled_from(["decode-only", "prefill-decode", "encode-decode"]), COUNT),
    st.none() | st.dictionaries(st.sampled_from([*PLACES, "stranger"]), COUNT),
)
def test_edges_add_up_whatever_is_known(
    attempts: dict[str, float], decisions: dict[str, float] | None, prefilled: dict[str, float] | None
) -> None:
    shares = measured_shares(attempts, PLACES, decisions=decisions, prefilled=prefilled)
    if shares.total:
        assert math.fsum(edge.share for edge in shares.edges) == pytest.approx(1.0)
        assert sum(edge.count for edge in shares.edges) == shares.total
    for lane in shares.lanes:
        assert lane.low <= lane.share <= lane.high or not shares.total
