"""Votes: who may, on what, and what they lead to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.db.models import F

from controlplane import queue
from controlplane.access.models import Grant, User
from controlplane.approvals.models import ChangeRequest, Vote
from controlplane.approvals.services import (
    approved_request,
    expire_requests,
    mark_stale,
    withdraw_request,
)
from controlplane.audit.clock import database_now
from controlplane.audit.models import AuditEvent
from controlplane.errors import LockstepError
from policy.approval.quorum import Slot
from tests.conftest import Cast, make_person
from tests.controlplane.approvals.requests import DIGEST, SOMEBODY, ask, vote

pytestmark = pytest.mark.django_db


def allowed(**changed: Any) -> ChangeRequest | None:
    return approved_request(**{"subject_kind": "upgrades.plan", "subject_id": 7, "digest": DIGEST} | changed)


def test_two_different_people_carry_a_high_risk(users: Cast) -> None:
    request = ask(users.operator, risk="high")
    assert vote(request, users.approver).state == "open"
    assert allowed() is None
    assert vote(request, users.second_approver).state == "approved"
    assert allowed() == request


def test_low_risk_needs_nobody_and_is_on_record(users: Cast) -> None:
    request = ask(users.operator, risk="low")
    assert request.state == "approved"
    assert AuditEvent.objects.filter(action="request.approved", target_id=request.pk).count() == 1


@pytest.mark.parametrize(
    ("who", "changed", "code"),
    [
        ("operator", {}, "requester"),
        ("second_approver", {}, "editor"),
        ("viewer", {}, "role-missing"),
        ("approver", {"digest": "sha256:" + "b" * 64}, "digest-mismatch"),
        ("approver", {"is_token": True}, "token-cannot-vote"),
        ("approver", {"choice": "reject", "comment": "  "}, "comment-missing"),
        ("approver", {"choice": "withdraw"}, "no-vote-to-withdraw"),
        ("approver", {"choice": "maybe"}, "choice-unknown"),
    ],
)
@pytest.mark.parametrize("superuser", [False, True])
def test_refusals_hold_for_everybody(
    users: Cast, who: str, changed: dict[str, Any], code: str, superuser: bool
) -> None:
    request = ask(users.operator, excluded={"ben": "editor"})
    voter: User = getattr(users, who)
    voter.is_superuser = superuser
    voter.save()
    Grant.objects.create(user=users.operator, role="approver")
    with pytest.raises(LockstepError) as refused:
        vote(request, voter, **changed)
    assert refused.value.code == code
    assert not Vote.objects.exists()


def test_an_old_sign_in_does_not_carry_a_high_risk(users: Cast) -> None:
    request = ask(users.operator, risk="high")
    with pytest.raises(LockstepError, match="sign-in-too-old"):
        vote(request, users.approver, signed_in_at=database_now() - timedelta(minutes=16))


def test_an_approver_of_another_namespace_may_not_vote(users: Cast) -> None:
    elsewhere = make_person("eve", Grant.Role.APPROVER, cluster="lab", namespace="other")
    here = make_person("hal", Grant.Role.APPROVER, cluster="lab", namespace="serving")
    request = ask(users.operator)
    with pytest.raises(LockstepError, match="role-missing"):
        vote(request, elsewhere)
    assert vote(request, here).state == "approved"


def test_one_rejection_ends_it(users: Cast) -> None:
    request = ask(users.operator, risk="high")
    vote(request, users.approver)
    assert vote(request, users.second_approver, "reject").state == "rejected"
    with pytest.raises(LockstepError, match="request-not-open"):
        vote(request, users.approver)
    assert allowed() is None


def test_the_last_word_counts_once(users: Cast) -> None:
    request = ask(users.operator, risk="high")
    vote(request, users.approver)
    with pytest.raises(LockstepError, match="already-voted"):
        vote(request, users.approver)
    vote(request, users.approver, "withdraw")
    assert vote(request, users.second_approver).state == "open"
    assert vote(request, users.approver).state == "approved"
    assert request.votes.count() == 4


def test_an_edit_voids_votes_with_notice(users: Cast) -> None:
    request = ask(users.operator)
    vote(request, users.approver)
    assert (
        mark_stale(subject_kind="upgrades.plan", subject_id=7, reason="The plan changed.", actor=SOMEBODY)
        == 1
    )
    request.refresh_from_db()
    assert (request.state, request.state_reason) == ("stale", "The plan changed.")
    assert [row.void_reason for row in request.votes.all()] == ["The plan changed."]
    assert allowed() is None
    again = ask(users.operator, digest="sha256:" + "c" * 64)
    assert again.state == "open", "votes do not move to the next request"


def test_expiry_does_nothing_but_end_it(users: Cast) -> None:
    soon = database_now() + timedelta(hours=1)
    late, fresh = ask(users.operator, expires_at=soon), ask(users.operator, subject_id=8)
    assert expire_requests(soon - timedelta(seconds=1)) == 0
    assert expire_requests(soon) == 1
    late.refresh_from_db()
    fresh.refresh_from_db()
    assert (late.state, fresh.state) == ("expired", "open")


def test_an_expired_vote_is_refused_before_any_sweep(users: Cast) -> None:
    request = ask(users.operator)
    ChangeRequest.objects.update(expires_at=database_now())
    with pytest.raises(LockstepError, match="request-not-open"):
        vote(request, users.approver)


def test_an_approval_that_ran_out_allows_nothing(users: Cast) -> None:
    request = ask(users.operator)
    vote(request, users.approver)
    assert allowed() == request
    ChangeRequest.objects.filter(pk=request.pk).update(expires_at=database_now())
    assert allowed() is None


@pytest.mark.parametrize("loss", ["role", "account"])
def test_the_quorum_is_counted_again_before_acting(users: Cast, loss: str) -> None:
    request = ask(users.operator)
    vote(request, users.approver)
    assert allowed() == request
    if loss == "role":
        users.approver.grants.all().delete()
    else:
        User.objects.filter(pk=users.approver.pk).update(is_active=False)
    assert allowed() is None


def test_an_approval_is_for_one_step_and_attempt(users: Cast) -> None:
    step = {"subject_kind": "operations.hold", "subject_id": 3, "step": "half", "attempt": 1}
    request = ask(users.operator, **step)
    vote(request, users.approver)
    assert allowed(**step) == request
    assert allowed(**step | {"attempt": 2}) is None
    assert allowed(**step | {"step": "last-old-groups"}) is None
    assert allowed(**step | {"digest": "sha256:" + "b" * 64}) is None


def test_a_group_slot_needs_a_member_and_matches_by_assignment(users: Cast) -> None:
    from django.contrib.auth.models import Group

    owners = Group.objects.create(name="chat-owners")
    users.approver.groups.add(owners)
    slots = (Slot("approver", "chat-owners"), Slot("approver"))
    request = ask(users.operator, risk="high", slots=slots)
    assert vote(request, users.approver).state == "open"
    assert vote(request, users.second_approver).state == "approved"


def test_only_the_requester_withdraws(users: Cast) -> None:
    request = ask(users.operator, excluded={"ben": "responsible-person"})
    with pytest.raises(LockstepError, match="not-the-requester"):
        withdraw_request(request_id=request.pk, by=users.admin, reason="", actor=SOMEBODY)
    withdrawn = withdraw_request(request_id=request.pk, by=users.second_approver, reason="", actor=SOMEBODY)
    assert withdrawn.state == "withdrawn"


def test_one_open_request_per_subject(users: Cast) -> None:
    ask(users.operator)
    with pytest.raises(LockstepError, match="request-already-open"):
        ask(users.operator)
    ask(users.operator, subject_id=8)


def test_a_decision_rings_the_bell_that_was_left(
    users: Cast, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    rung: list[tuple[str, Any]] = []
    monkeypatch.setattr(queue, "ring", lambda task, argument: rung.append((task, argument)))
    request = ask(users.operator, risk="high", bell={"task": queue.ADVANCE, "argument": 12})
    with django_capture_on_commit_callbacks(execute=True):
        vote(request, users.approver)
    assert rung == []
    with django_capture_on_commit_callbacks(execute=True):
        vote(request, users.second_approver)
    assert rung == [(queue.ADVANCE, 12)]


def test_votes_cannot_be_changed_or_removed_in_the_database(users: Cast) -> None:
    request = ask(users.operator)
    vote(request, users.approver)
    for change in ({"choice": "reject"}, {"void_reason": "x", "comment": "y"}):
        with pytest.raises(DatabaseError, match="votes stay"), transaction.atomic():
            Vote.objects.update(**change)
    with pytest.raises(DatabaseError, match="votes stay"), transaction.atomic():
        Vote.objects.all()._raw_delete("default")
    Vote.objects.update(void_reason="stale")
    with pytest.raises(DatabaseError, match="votes stay"), transaction.atomic():
        Vote.objects.update(void_reason="another")


def test_the_evidence_shows_no_secret(users: Cast) -> None:
    env = [{"name": "KEY", "value": "hunter2"}]
    request = ask(users.operator, evidence={"before": {"env": env}, "after": {"env": env}})
    request.refresh_from_db()
    assert "hunter2" not in str(request.evidence)
    assert request.evidence["before"] == request.evidence["after"]


def test_every_vote_raises_the_version(users: Cast) -> None:
    request = ask(users.operator, risk="high")
    before = ChangeRequest.objects.filter(pk=request.pk).annotate(seen=F("version")).get().seen
    assert vote(request, users.approver).version == before + 1
