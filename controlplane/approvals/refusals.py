"""Which votes are not taken, as errors with a code, a sentence and a next action."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from controlplane.access.models import User
from controlplane.approvals.models import ChangeRequest, Vote
from controlplane.approvals.standing import request_facts, standing_of, voter_of
from controlplane.errors import BadInput, LockstepError, NotAllowed, Refused
from policy.approval import lifecycle
from policy.approval.eligibility import Refusal, refuse_voter

_STATE_CODES = frozenset({"request-not-open", "evidence-not-green"})


def refuse_voting(
    request: ChangeRequest,
    votes: Sequence[Vote],
    *,
    voter: User,
    choice: str,
    comment: str,
    digest: str,
    signed_in_at: datetime | None,
    is_token: bool,
    now: datetime,
) -> None:
    """Raise the first reason why this vote is not taken; the caller holds the request's lock."""
    if is_token:
        raise NotAllowed(
            "token-cannot-vote",
            "Votes are not taken through API tokens.",
            next_action="Sign in and vote in person.",
        )
    if choice not in Vote.Choice.values:
        raise BadInput("choice-unknown", f"A vote is {', '.join(Vote.Choice.values)}.", field="choice")
    standing = standing_of(request, votes, now=now)
    if request.state != ChangeRequest.State.OPEN:
        standing = lifecycle.Standing(cast(lifecycle.State, request.state))
    facts = request_facts(request)
    vote = lifecycle.Vote(voter.username, cast(lifecycle.Choice, choice), digest, now, facts.step)
    account = voter_of(voter, request, signed_in_at=signed_in_at)
    refusals = lifecycle.refuse_vote(vote, account, facts, standing, comment=comment, now=now)
    if refusals:
        raise _as_error(refusals[0], request, digest)
    _refuse_repeating(votes, voter=voter, choice=choice, digest=digest)


def why_not(
    user: User, request: ChangeRequest, *, signed_in_at: datetime | None, by_token: bool, now: datetime
) -> list[dict[str, str]]:
    """Every reason why this account may not vote now, for a page to show before anybody tries."""
    account = voter_of(user, request, signed_in_at=signed_in_at, by_token=by_token)
    facts = request_facts(request)
    refusals = refuse_voter(
        account, slots=facts.slots, excluded=facts.excluded, level=facts.content.bounds.risk, now=now
    )
    return [
        {"code": refusal.code, "detail": refusal.sentence, "next_action": refusal.next_action}
        for refusal in refusals
    ]


def _refuse_repeating(votes: Sequence[Vote], *, voter: User, choice: str, digest: str) -> None:
    mine = [
        vote for vote in votes if vote.voter_id == voter.pk and vote.digest == digest and not vote.void_reason
    ]
    last = mine[-1].choice if mine else Vote.Choice.WITHDRAW
    if last != choice:
        return
    if choice == Vote.Choice.WITHDRAW:
        raise Refused("no-vote-to-withdraw", "You have no vote here to withdraw.")
    raise Refused(
        "already-voted", f"Your vote is {choice} already.", next_action="Withdraw it to change your mind."
    )


def _as_error(refusal: Refusal, request: ChangeRequest, digest: str) -> LockstepError:
    if refusal.code == "other-content":
        return Refused(
            "digest-mismatch",
            refusal.sentence,
            next_action=refusal.next_action,
            field="digest",
            seen=digest,
            present=request.digest,
        )
    if refusal.code == "comment-missing":
        return BadInput(refusal.code, refusal.sentence, next_action=refusal.next_action, field="comment")
    kind = Refused if refusal.code in _STATE_CODES else NotAllowed
    return kind(refusal.code, refusal.sentence, next_action=refusal.next_action)
