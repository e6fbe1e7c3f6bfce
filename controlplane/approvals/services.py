"""Asking for approval and giving it. Each function is one transaction under the lock of the request's row."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from controlplane import events, queue
from controlplane.access.models import User
from controlplane.access.permissions import require
from controlplane.approvals.models import ChangeRequest, Vote
from controlplane.approvals.refusals import refuse_voting
from controlplane.approvals.standing import request_facts, slots_as_json, standing_of
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.redaction import plain
from controlplane.audit.services import record_event
from controlplane.errors import NotAllowed, NotFound, Refused
from policy.approval import lifecycle
from policy.approval.eligibility import REQUESTER
from policy.approval.quorum import Slot
from policy.canonical import redact

_State = ChangeRequest.State


def open_request(
    *,
    subject_kind: str,
    subject_id: object,
    step: str = "",
    attempt: int = 0,
    digest: str,
    title: str,
    reason: str,
    evidence: Mapping[str, Any],
    risk: str,
    slots: Sequence[Slot],
    cluster: str,
    namespace: str,
    requester: User,
    excluded: Mapping[str, str],
    expires_at: datetime,
    actor: Actor,
    bell: Mapping[str, Any] | None = None,
) -> ChangeRequest:
    """Ask for the approval of one digest, for a subject or for one step and attempt of it.

    `excluded` maps usernames to why they may not vote (policy.approval.eligibility.exclusions); the requester
    always is. Without slots the request is approved at once, on record. `bell` ({task, argument}) is rung
    whenever the request leaves `open`. Secrets in `evidence` are redacted here. Raises Refused
    (request-already-open) while another one for the same subject, step and attempt collects votes.
    """
    shown = redact(plain(evidence), salt=secrets.token_bytes(16))
    try:
        with transaction.atomic():
            request = ChangeRequest.objects.create(
                subject_kind=subject_kind,
                subject_id=str(subject_id),
                step=step,
                attempt=attempt,
                digest=digest,
                title=title[:300],
                reason=reason,
                evidence=shown,
                risk=risk,
                slots=slots_as_json(slots),
                cluster=cluster,
                namespace=namespace,
                requester=requester,
                excluded={**excluded, requester.username: REQUESTER},
                bell=dict(bell or {}),
                created_at=database_now(),
                expires_at=expires_at,
            )
            _record(request, "request.open", actor, reason=reason)
            _settle(request, actor)
    except IntegrityError as error:
        raise Refused(
            "request-already-open",
            "There is an open request for this already.",
            next_action="Vote on it, or withdraw it first.",
            subject_kind=subject_kind,
            subject_id=str(subject_id),
        ) from error
    return request


def cast_vote(
    *,
    request_id: int,
    voter: User,
    choice: str,
    comment: str = "",
    digest: str,
    signed_in_at: datetime | None,
    is_token: bool,
    actor: Actor,
) -> ChangeRequest:
    """Add one person's word on the digest that they saw, and decide the request if that settles it.

    The last word of a person counts; `withdraw` takes it back. Raises NotAllowed (token-cannot-vote,
    requester, editor, role-missing, sign-in-too-old, …; superusers too), Refused (request-not-open,
    digest-mismatch, already-voted, no-vote-to-withdraw) or BadInput (comment-missing); nothing is stored.
    """
    with transaction.atomic():
        request = _locked(request_id)
        now = database_now()
        votes = list(request.votes.with_voters())
        refuse_voting(
            request,
            votes,
            voter=voter,
            choice=choice,
            comment=comment,
            digest=digest,
            signed_in_at=signed_in_at,
            is_token=is_token,
            now=now,
        )
        Vote.objects.create(
            request=request, voter=voter, choice=choice, comment=comment, digest=digest, at=now
        )
        request.version += 1
        request.save(update_fields=["version"])
        after = {"choice": choice, "digest": digest, "request": request.pk}
        record_event(
            actor=actor,
            action="vote.cast",
            target_kind="change-request",
            target_id=request.pk,
            after=after,
            reason=comment,
        )
        events.publish(event="request.vote", object_kind="change-request", object_id=str(request.pk))
        _settle(request, actor)
    return request


def mark_stale(
    *,
    subject_kind: str,
    subject_id: object,
    reason: str,
    actor: Actor,
    step: str | None = None,
) -> int:
    """Void the votes of every open or approved request for this subject (step None: any); how many.

    Called in the transaction of the edit or of the finding that changed what the votes meant.
    """
    with transaction.atomic():
        rows = ChangeRequest.objects.of_subject(subject_kind, subject_id)
        if step is not None:
            rows = rows.filter(step=step)
        live = rows.filter(state__in=[_State.OPEN, _State.APPROVED]).order_by("pk")
        requests = list(live.select_for_update(no_key=True))
        for request in requests:
            request.votes.filter(void_reason="").update(void_reason=reason[:200])
            _end(request, _State.STALE, reason, actor)
        return len(requests)


def withdraw_request(*, request_id: int, by: User, reason: str, actor: Actor) -> ChangeRequest:
    """Take a request back, open or approved; only for its requester, or who answers for its token."""
    with transaction.atomic():
        request = _locked(request_id)
        if by.token is not None:  # a person may always take back what was asked for in their name
            require(by, "plan.request", cluster=request.cluster, namespace=request.namespace)
        answers = request.excluded.get(by.username) in ("requester", "responsible-person", "token-owner")
        if not answers:
            raise NotAllowed(
                "not-the-requester",
                "Only who made this request withdraws it.",
                next_action="Reject it, if you may vote on it.",
            )
        if request.state not in (_State.OPEN, _State.APPROVED):
            raise Refused("request-not-open", f"This request is {request.state}.")
        _end(request, _State.WITHDRAWN, reason, actor)
    return request


def expire_requests(now: datetime, *, actor: Actor | None = None) -> int:
    """End every open request past its time, without doing what it asked for; how many there were."""
    by = actor or Actor(name="sweep", kind="worker")
    with transaction.atomic():
        rows = ChangeRequest.objects.overdue(now).order_by("pk")
        requests = list(rows.select_for_update(no_key=True, skip_locked=True))
        for request in requests:
            _end(request, _State.EXPIRED, "Time ran out; nothing was done.", by)
        return len(requests)


def approved_request(
    *, subject_kind: str, subject_id: object, step: str = "", attempt: int = 0, digest: str
) -> ChangeRequest | None:
    """The request that allows exactly this now, or None: the re-check just before acting.

    Approved, for this digest, step and attempt, not expired, and still carried by a quorum of accounts that
    may vote today. Inside a transaction the row stays locked until its end, so that nothing changes under the
    caller's hands.
    """
    rows = ChangeRequest.objects.of_subject(subject_kind, subject_id).filter(
        step=step, attempt=attempt, digest=digest, state=_State.APPROVED
    )
    if connection.in_atomic_block:
        rows = rows.select_for_update(no_key=True)
    request = rows.order_by("-pk").first()
    if request is None:
        return None
    standing = standing_of(request, list(request.votes.with_voters()), now=database_now())
    passes = lifecycle.passes(request_facts(request), standing, step=request_facts(request).step)
    return request if passes else None


def _locked(request_id: int) -> ChangeRequest:
    request = ChangeRequest.objects.select_for_update(no_key=True).filter(pk=request_id).first()
    if request is None:
        raise NotFound("no-such-request", "There is no such change request.")
    return request


def _settle(request: ChangeRequest, actor: Actor) -> None:
    """Decide by the votes there are; the caller holds the row's lock."""
    standing = standing_of(request, list(request.votes.with_voters()), now=database_now())
    if standing.state == lifecycle.OPEN:
        return
    sentence = " ".join(reason.sentence for reason in standing.reasons)
    if standing.state == lifecycle.APPROVED:
        sentence = f"Approved by {', '.join(standing.counted)}." if standing.counted else "No vote is needed."
    _end(request, _State(standing.state), sentence, actor)


def _end(request: ChangeRequest, state: ChangeRequest.State, reason: str, actor: Actor) -> None:
    before = request.state
    request.state, request.state_reason, request.decided_at = state, reason, database_now()
    request.version += 1
    request.save(update_fields=["state", "state_reason", "decided_at", "version"])
    _record(request, f"request.{state}", actor, before={"state": before}, reason=reason)
    if request.bell:
        queue.ring_on_commit(str(request.bell["task"]), request.bell["argument"])


def _record(request: ChangeRequest, action: str, actor: Actor, *, before: Any = None, reason: str) -> None:
    after = {
        "state": request.state,
        "digest": request.digest,
        "subject": f"{request.subject_kind}/{request.subject_id}",
        "step": request.step,
        "attempt": request.attempt,
        "cluster": request.cluster,
        "namespace": request.namespace,
    }
    record_event(
        actor=actor,
        action=action,
        target_kind="change-request",
        target_id=request.pk,
        before=before,
        after=after,
        reason=reason,
    )
    events.publish(event=action, object_kind="change-request", object_id=str(request.pk))
