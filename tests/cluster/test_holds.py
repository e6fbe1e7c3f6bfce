"""Holds: where they stand, who lets go, how old they get, what a vote covers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.operations.contract import StepContext
from controlplane.upgrades.models import UpdateRecord
from controlplane.upgrades.steps import hold
from deploy.rig import until, workloads
from tests.cluster.driving import Lockstep
from tests.cluster.four import asked, four, remembered, seen_now
from tests.cluster.midway import Midway, at_first_hold, started

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROLES = ("prefill", "decode")


without_votes = pytest.mark.parametrize("lockstep", ["development"], indirect=True)


def test_every_row_asks_for_itself(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = four(lockstep, namespace, make_set, holds=["every-row"])
    stood = []

    def step() -> bool:
        now = lockstep.state(upgrade.operation)
        if now.state == "waiting":
            request = asked(upgrade)[-1]
            assert request.state == "open", "an approval for one hold never passes the next"
            stood.append(int(request.evidence["row"]))
            assert upgrade.counts() == upgrade.at_row(stood[-1])
            lockstep.let_go(now)
        upgrade.look()
        return now.state == "succeeded"

    lockstep.until("the end", step, limit_s=90)
    assert stood == [1, 2, 3, 4, 5, 6, 7]
    assert {request.state for request in asked(upgrade)} == {"approved"}
    assert len({request.digest for request in asked(upgrade)}) == 7


def test_a_last_vote_in_the_middle_of_a_look_is_not_asked_for_again(
    midway: Midway, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, operation = hold._approved, midway.lockstep.state(midway.operation)

    def voted_just_after(context: StepContext, key: str) -> bool:
        found = look(context, key)
        if not found:
            midway.lockstep.let_go(operation)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(hold, "_approved", voted_just_after)
        midway.look()
    assert [request.state for request in asked(midway)] == ["approved"]
    midway.ends("succeeded")


@pytest.mark.parametrize(("rule", "row"), [("half", 3), ("last-old-groups", 7)])
@without_votes
def test_a_rule_stops_at_its_row(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, rule: str, row: int
) -> None:
    upgrade = four(lockstep, namespace, make_set, holds=[rule], promote="manual")
    upgrade.reached("waiting", limit_s=60)
    assert upgrade.counts() == upgrade.at_row(row)
    assert rule in lockstep.state(upgrade.operation).waits_for["what"]
    seen_now(lockstep)
    upgrade.ends("succeeded")


@without_votes
def test_a_promote_passes_the_hold_that_was_seen_and_no_other(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = started(lockstep, namespace, make_set, promote="manual")
    early = lockstep.verb(upgrade.operation, "promote", {"reason": "too early"})
    assert (early.status_code, early.json()["code"]) == (409, "not-at-a-hold")

    upgrade.reached("waiting")
    first = lockstep.state(upgrade.operation)
    key = first.waits_for["hold_key"]
    blind = lockstep.verb(upgrade.operation, "promote", {"reason": "nobody looked"})
    assert (blind.status_code, blind.json()["code"]) == (409, "view-is-stale")
    seen_now(lockstep)
    upgrade.verb("promote", reason="it serves")
    after = lockstep.post(lockstep.operator, f"operations/{first.pk}/promote", {}, version=first.version)
    assert (after.status_code, after.json()["code"]) == (412, "stale-edit")

    upgrade.reached("waiting")
    second = lockstep.state(upgrade.operation).waits_for["hold_key"]
    assert second != key and second.endswith("-row-3"), "the last old groups ask for themselves"
    for _ in range(3):
        upgrade.look()
    assert lockstep.state(upgrade.operation).waits_for["hold_key"] == second
    seen_now(lockstep)
    upgrade.ends("succeeded")


def test_votes_first_and_then_a_person(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, promote="manual")
    now = lockstep.state(upgrade.operation)
    assert now.waits_for["who"] == "approvers" and not now.waits_for["hold_key"]
    seen_now(lockstep)
    early = lockstep.verb(upgrade.operation, "promote", {"reason": "impatient"})
    assert (early.status_code, early.json()["code"]) == (409, "not-at-a-hold")
    lockstep.approve(asked(upgrade)[0].pk)

    def asks_operators() -> bool:
        upgrade.look()
        return lockstep.state(upgrade.operation).waits_for.get("who") == "operators"

    lockstep.until("a promote is asked for", asks_operators)
    assert upgrade.counts() == upgrade.first_row()
    seen_now(lockstep)
    upgrade.ends("succeeded")


def test_a_hold_that_is_too_old_goes_back_by_itself(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, hold_max_age=60, hold_end="abort")
    waits = lockstep.state(upgrade.operation).waits_for
    age = datetime.fromisoformat(waits["until"]) - datetime.fromisoformat(waits["since"])
    assert timedelta(seconds=55) < age <= timedelta(seconds=60) and waits["then"] == "the operation aborts"
    assert asked(upgrade)[0].expires_at == datetime.fromisoformat(waits["until"]), "the only countdown"
    grow_older(upgrade)
    upgrade.ends("rolled-back")
    assert upgrade.counts() == upgrade.before()
    assert workloads.wait_settled(upgrade.client("admin"), namespace, "model") == upgrade.old
    assert UpdateRecord.objects.get(operation=upgrade.operation).outcome == "rolled-back"
    assert asked(upgrade)[0].state in {"stale", "expired"}
    row = AuditEvent.objects.get(action="upgrades.hold", after__effect="abort")
    assert "maximum age" in row.after["facts"]["reason"]


def test_a_hold_that_is_kept_stays_however_old(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, hold_max_age=60, hold_end="keep")
    grow_older(upgrade)
    for _ in range(3):
        upgrade.look()
    now = lockstep.state(upgrade.operation)
    assert (now.state, now.phase, now.waits_for["until"]) == ("waiting", "forward", None)
    assert now.waits_for["then"] == "it keeps standing here"
    upgrade.ends("succeeded")


def grow_older(upgrade: Midway) -> None:
    """Let an hour go by at the hold."""
    kept = upgrade.lockstep.state(upgrade.operation).memory["hold_since"]
    older = {key: (datetime.fromisoformat(at) - timedelta(hours=1)).isoformat() for key, at in kept.items()}
    remembered(upgrade, hold_since=older)


def test_a_rejected_hold_is_held_and_a_retry_asks_again(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    (first,) = asked(upgrade)
    said = lockstep.vote(first.pk, lockstep.people.approver, "reject", "latency doubled")
    assert said.status_code in (200, 201), said.json()
    finding = upgrade.found("step-rejected")
    assert finding["facts"]["request"] == first.pk
    upgrade.verb("resume", reason="the same attempt")
    upgrade.found("step-rejected")
    assert len(asked(upgrade)) == 1, "a resume does not ask again"

    upgrade.verb("retry", reason="mended")
    upgrade.reached("waiting")
    again = asked(upgrade)[-1]
    assert (again.pk > first.pk, again.attempt, again.step) == (True, first.attempt + 1, first.step)
    assert again.digest != first.digest
    assert upgrade.counts() == upgrade.first_row()
    upgrade.ends("succeeded")


def test_votes_that_are_collected_for_an_attempt_that_is_over_are_closed(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    (first,) = asked(upgrade)
    approved = upgrade.live_roles()
    upgrade.write_roles(upgrade.with_image("registry.example/engine:v3"))
    upgrade.found("foreign-write")
    upgrade.write_roles(approved)
    until("the approved revision to come back", lambda: upgrade.counts() == upgrade.first_row())
    upgrade.verb("retry", reason="stopped that writer")

    def asks_again() -> bool:
        upgrade.look()
        return len(asked(upgrade)) == 2

    lockstep.until("a request of the new attempt", asks_again)
    first.refresh_from_db()
    assert first.state == "stale"
    late = lockstep.vote(first.pk, lockstep.people.approver)
    assert (late.status_code, late.json()["code"]) == (409, "request-not-open")
    assert [request.state for request in asked(upgrade)] == ["stale", "open"]
    upgrade.ends("succeeded")


def test_stop_and_adopt_do_not_pass_a_hold(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    midway = at_first_hold(lockstep, namespace, make_set, holds=["every-row"])
    stood = midway.counts()
    assert lockstep.verb(midway.operation, "stop").status_code in (200, 202)
    midway.reached("held")
    assert lockstep.verb(midway.operation, "adopt", {"reason": "test"}).status_code in (200, 202)
    midway.reached("waiting")
    assert midway.counts() == stood, "nothing moved without a vote"
    assert lockstep.state(midway.operation).waits_for["what"].startswith("approval ")
    assert lockstep.finished(midway.operation) == "succeeded", lockstep.story()
