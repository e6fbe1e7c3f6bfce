from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from policy.rollout.machine import OUTCOMES, Phase, State
from policy.rollout.status_line import StatusFacts, status_line

NOW = datetime(2026, 11, 30, 14, 31, tzinfo=UTC)


def text(state: State, phase: Phase = Phase.FORWARD, **facts: Any) -> str:
    given = {"now": NOW, "since": NOW - timedelta(minutes=14)} | facts
    return status_line(StatusFacts(state=state, phase=phase, **given)).text


def test_waiting_for_people() -> None:
    assert text(
        State.WAITING,
        what="2 approvals at the first complete row",
        who="serving-approvers",
        until=NOW + timedelta(hours=3, minutes=46),
        then="is aborted",
    ) == (
        "Waits for 2 approvals at the first complete row, since 14:17 UTC (14 min). "
        "serving-approvers can act. If nobody does, it is aborted at 18:17 UTC (in 3 h 46 min)."
    )


def test_working_needs_nobody() -> None:
    assert text(
        State.WORKING, what="1 new group of decode to be ready", since=NOW - timedelta(seconds=40)
    ) == (
        "Waits for 1 new group of decode to be ready, since 14:30 UTC (40 s). Nobody needs to act. "
        "It goes on by itself."
    )
    assert text(State.WORKING).startswith("Works on its next step, since 14:17 UTC")


def test_working_with_a_limit() -> None:
    assert text(
        State.WORKING, what="ready groups", until=NOW + timedelta(minutes=5), then="is held"
    ).endswith("If nothing changes, it is held at 14:36 UTC (in 5 min).")


def test_held_names_the_finding_and_the_cure() -> None:
    assert text(
        State.HELD,
        finding="Somebody else wrote the roles of this set.",
        who="operators of prod-eu1",
        next_action="adopt their change or abort.",
    ) == (
        "Held since 14:17 UTC (14 min): Somebody else wrote the roles of this set. "
        "operators of prod-eu1 can act: adopt their change or abort. "
        "If nobody does, it stays held and no group moves."
    )


def test_going_back_is_said_first() -> None:
    assert text(State.WORKING, Phase.ABORTING, what="4 old groups of prefill to be ready").startswith(
        "Going back, waits for 4 old groups of prefill to be ready, since 14:17 UTC"
    )
    assert text(State.HELD, Phase.ABORTING, finding="webhook down").startswith(
        "Going back, held since 14:17 UTC (14 min): webhook down."
    )


def test_a_moment_that_has_passed_is_not_a_countdown() -> None:
    assert "it is aborted now (it was due at 14:30 UTC)" in text(
        State.WAITING, until=NOW - timedelta(minutes=1), then="is aborted"
    )


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(seconds=-5), "since 14:31 UTC (0 s)"),
        (timedelta(hours=2), "since 12:31 UTC (2 h)"),
        (timedelta(hours=26), "since 2026-11-29 12:31 UTC (1 d 2 h)"),
        (timedelta(days=2), "since 2026-11-28 14:31 UTC (2 d)"),
    ],
)
def test_times(ago: timedelta, expected: str) -> None:
    assert expected in text(State.WAITING, since=NOW - ago)


def test_times_are_shown_in_utc() -> None:
    since = datetime(2026, 11, 30, 16, 17, tzinfo=timezone(timedelta(hours=2)))
    assert "since 14:17 UTC" in text(State.WAITING, since=since)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        text(State.WAITING, since=datetime(2026, 11, 30))


@pytest.mark.parametrize("state", sorted(State))
@pytest.mark.parametrize("phase", Phase)
def test_every_state_answers_every_question(state: State, phase: Phase) -> None:
    line = status_line(StatusFacts(state=state, phase=phase, now=NOW, since=NOW))
    assert all((line.what, line.since, line.who, line.otherwise))
    assert line.text.endswith(".")
    if state not in OUTCOMES:
        assert ".." not in line.text


def test_a_failed_operation_needs_somebody() -> None:
    assert text(State.FAILED, finding="2 of 4 groups are ready") == (
        "Failed: it went back, and the old revision does not serve, at 14:17 UTC: 2 of 4 groups are ready. "
        "An operator must act. If nobody does, the set stays as it is."
    )
    assert text(State.SUCCEEDED) == "Succeeded, at 14:17 UTC."
