"""An upgrade in place never lets requests meet two revisions that do not fit, and says what it does not know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rollout.hazards_path import MAY_MEET, CrossPair, PathExam, path_hazards

BAD = CrossPair("old", "new", "incompatible", "The block sizes differ.")
GOOD = CrossPair("new", "old", "compatible", "Every factor is equal.")


def exam(**fields: Any) -> PathExam:
    given: dict[str, Any] = {"pools": ("chat",), "screening": "proved", "guard": "guarded", "probed": True}
    return PathExam(**(given | fields))


def ids(found: PathExam | None) -> list[str]:
    return [hazard.id for hazard in path_hazards(found)]


def test_a_path_that_was_seen_to_keep_revisions_apart_has_no_hazard() -> None:
    assert ids(exam(pairs=(BAD,))) == [], "the router keeps such pairs apart"


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (None, ["path-not-examined"]),
        (exam(pools=()), ["path-not-examined"]),
        (exam(screening="configured"), ["screening-not-proved"]),
        (exam(screening="configured", pairs=(BAD, GOOD)), ["screening-not-proved"]),
        (exam(screening="configured", pairs=(GOOD,)), ["revisions-may-meet"]),
        (exam(screening="absent", pairs=(GOOD, BAD)), ["mixed-pairs-possible"]),
        (exam(screening="unknown", pairs=()), ["mixed-pairs-possible"]),
        (exam(screening="absent", pairs=(GOOD,)), ["revisions-may-meet"]),
        (exam(guard="open", guard_sentence="It passes."), ["clients-can-pin"]),
        (exam(probed=False), ["path-not-probed"]),
        (exam(without_golden=("chat",)), ["golden-not-recorded"]),
        (exam(other_weights=("model",)), ["golden-of-other-weights"]),
    ],
)
def test_what_is_said(found: PathExam | None, wanted: list[str]) -> None:
    assert ids(found) == wanted


def test_what_may_not_be_listed_is_named() -> None:
    (hazard,) = path_hazards(PathExam((), unread=("inferencepools",)))
    assert "inferencepools" in hazard.sentence


pairs = st.builds(
    CrossPair,
    st.sampled_from(["old", "new"]),
    st.sampled_from(["old", "new"]),
    st.sampled_from([*MAY_MEET, "incompatible", "dangerous", "unknown"]),
    st.just("So it is."),
)


@given(
    st.sampled_from(["proved", "configured", "absent", "unknown"]),
    st.lists(pairs, max_size=4).map(tuple),
    st.booleans(),
)
def test_requests_meet_two_revisions_only_where_every_pair_fits(
    screening: Any, found: tuple[CrossPair, ...], probed: bool
) -> None:
    hazards = path_hazards(exam(screening=screening, pairs=found, probed=probed))
    fits = bool(found) and all(pair.outcome in MAY_MEET for pair in found)
    assert any(hazard.severity == "block" for hazard in hazards) == (screening != "proved" and not fits)


@pytest.mark.parametrize("pools", [("chat",), ()])
def test_a_cluster_without_a_metric_source_is_told(pools: tuple[str, ...]) -> None:
    assert "no-metric-source" in ids(exam(pools=pools, metric_source=False))
    assert "no-metric-source" not in ids(exam(pools=pools)) + ids(None)


def test_engines_that_say_no_version_are_told_where_gates_need_it() -> None:
    (hazard,) = path_hazards(exam(unversioned=("decode",)))
    assert (hazard.id, hazard.severity) == ("engine-version-unknown", "warn") and "decode" in hazard.sentence
    assert ids(exam(unversioned=("decode",), metric_source=False)) == ["no-metric-source"]
