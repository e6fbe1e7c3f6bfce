"""From rows to the facts that policy.approval decides on, and back to words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from controlplane.access.models import User
from controlplane.access.permissions import roles_in
from controlplane.approvals import models
from policy.approval import lifecycle
from policy.approval.eligibility import Voter, refuse_counting
from policy.approval.quorum import Slot
from policy.approval.risk import Level


def slots_of(request: models.ChangeRequest) -> tuple[Slot, ...]:
    """The slots that were asked for when the request was opened."""
    return tuple(Slot(role=slot["role"], group=slot.get("group")) for slot in request.slots)


def slots_as_json(slots: Iterable[Slot]) -> list[dict[str, Any]]:
    """How slots are stored."""
    return [{"role": slot.role, "group": slot.group} for slot in slots]


def voter_of(
    user: User,
    request: models.ChangeRequest,
    *,
    signed_in_at: datetime | None = None,
    by_token: bool = False,
) -> Voter:
    """The account as policy sees it, with the roles it holds in the scope of the request."""
    return Voter(
        person=user.username,
        roles=roles_in(user, cluster=request.cluster, namespace=request.namespace),
        groups=frozenset(group.name for group in user.groups.all()),
        is_person=user.kind == User.Kind.PERSON,
        by_token=by_token,
        active=user.is_active,
        superuser=user.is_superuser,
        signed_in_at=signed_in_at,
    )


def request_facts(request: models.ChangeRequest) -> lifecycle.Request:
    """The request as it was made. Base and bounds are in the digest: the room that knows them marks stale."""
    return lifecycle.Request(
        content=_content(request),
        slots=slots_of(request),
        excluded=request.excluded,
        created_at=request.created_at,
        expires_at=request.expires_at,
        step=_step(request),
    )


def vote_facts(vote: models.Vote, request: models.ChangeRequest) -> lifecycle.Vote:
    """One row of votes."""
    return lifecycle.Vote(
        person=vote.voter.username,
        choice=cast(lifecycle.Choice, vote.choice),
        digest=vote.digest,
        at=vote.at,
        step=_step(request),
    )


def standing_of(
    request: models.ChangeRequest, votes: Sequence[models.Vote], *, now: datetime
) -> lifecycle.Standing:
    """Where the request stands by its votes and the present rights of those who cast them.

    `votes` come oldest first with voters, their grants and groups; voided ones do not count.
    """
    standing_votes = [vote for vote in votes if not vote.void_reason]
    present = lifecycle.Present(
        content=_content(request),
        slots=slots_of(request),
        voters={vote.voter.username: voter_of(vote.voter, request) for vote in standing_votes},
        step=_step(request),
    )
    rows = [vote_facts(vote, request) for vote in standing_votes]
    return lifecycle.request_state(request_facts(request), rows, present, now=now)


def possible_voters(request: models.ChangeRequest, *, at_most: int = 100) -> list[str]:
    """Usernames of people whose vote would count now, by name; three queries."""
    roles = {slot.role for slot in slots_of(request)}
    people = User.objects.filter(is_active=True, kind=User.Kind.PERSON, grants__role__in=roles).distinct()
    facts = request_facts(request)
    names = []
    for person in people.prefetch_related("grants", "groups").order_by("username"):
        account = voter_of(person, request)
        if not refuse_counting(account, slots=facts.slots, excluded=facts.excluded):
            names.append(person.username)
    return names[:at_most]


def _content(request: models.ChangeRequest) -> lifecycle.Content:
    bounds = lifecycle.Bounds(
        peak_devices=0, minimum_ready={}, holds=frozenset(), risk=cast(Level, request.risk)
    )
    return lifecycle.Content(digest=request.digest, base={}, bounds=bounds)


def _step(request: models.ChangeRequest) -> lifecycle.StepKey | None:
    if not request.step:
        return None
    return lifecycle.StepKey(operation=request.subject_id, step=request.step, attempt=request.attempt)
