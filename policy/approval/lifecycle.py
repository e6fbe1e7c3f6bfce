"""The state of a request, worked out anew from its facts and votes each time somebody asks.

Open collects votes and approved lets the change start. Rejected, withdrawn, expired and stale (what people
saw is no longer what would happen) are ends: the caller stores them and never asks again. Only the content
that was shown is ever approved: votes carry its digest, step approvals also operation, step and attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from policy.approval.eligibility import Refusal, Voter, refuse_counting, refuse_voter
from policy.approval.quorum import Approver, Slot, match_slots, tightened
from policy.approval.risk import Level, Reason, is_higher

State: TypeAlias = Literal["open", "approved", "rejected", "stale", "expired", "withdrawn"]
Choice: TypeAlias = Literal["approve", "reject", "withdraw"]

OPEN: State = "open"
APPROVED: State = "approved"
REJECTED: State = "rejected"
STALE: State = "stale"
EXPIRED: State = "expired"
WITHDRAWN: State = "withdrawn"

APPROVE: Choice = "approve"
REJECT: Choice = "reject"
WITHDRAW: Choice = "withdraw"

REQUEST_LIFETIME = timedelta(days=7)
STEP_LIFETIME = timedelta(hours=24)
# A hold rule that stops at more rows than any other, and so stands in for all of them.
EVERY_ROW = "every-row"


@dataclass(frozen=True, slots=True)
class StepKey:
    """Which pause of which operation an approval is for. Another attempt is another key."""

    operation: str
    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a voter agrees the change will stay within.

    `peak_devices` counts accelerators at the largest row, `minimum_ready` groups per role that stay ready,
    `holds` the rules at which the rollout stops, `hold_seconds` how long a hold may stand.
    """

    peak_devices: int
    minimum_ready: Mapping[str, int]
    holds: frozenset[str]
    risk: Level
    hold_seconds: int = 4 * 3600


@dataclass(frozen=True, slots=True)
class Content:
    """What is approved, or what is true now: digests of content and parts of the base, bounds."""

    digest: str
    base: Mapping[str, str]
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Vote:
    """One row of the append-only votes: who said what about which digest, when, and at which step."""

    person: str
    choice: Choice
    digest: str
    at: datetime
    step: StepKey | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A change request as it was made, with the policy's slots of then; `step` is set on a step approval."""

    content: Content
    slots: tuple[Slot, ...]
    excluded: Mapping[str, str]
    created_at: datetime
    expires_at: datetime
    step: StepKey | None = None
    withdrawn_at: datetime | None = None
    executed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """What is true now: the content as it would be computed, the slots of the policy, the voters' accounts.

    A voter who is not in `voters` is an account that is gone, and does not count.
    """

    content: Content
    slots: tuple[Slot, ...]
    voters: Mapping[str, Voter]
    step: StepKey | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The state with its reasons; `missing` slots while open; `counted` people whose approval stands."""

    state: State
    reasons: tuple[Reason, ...] = ()
    missing: tuple[Slot, ...] = ()
    counted: tuple[str, ...] = ()
    expires_at: datetime | None = field(default=None)


def request_expiry(created_at: datetime) -> datetime:
    """A request that nobody finished ends after 7 days: not done."""
    return created_at + REQUEST_LIFETIME


def step_expiry(created_at: datetime, *, hold_ends_at: datetime) -> datetime:
    """A step approval ends after 24 hours or with its hold, whichever comes first."""
    return min(created_at + STEP_LIFETIME, hold_ends_at)


def bounds_worse(approved: Bounds, now: Bounds) -> tuple[Reason, ...]:
    """Every way in which `now` goes beyond what was approved; empty when it stays within."""
    reasons: list[Reason] = []
    if now.peak_devices > approved.peak_devices:
        reasons.append(
            Reason(
                "more-devices",
                f"The peak needs {now.peak_devices} devices, {approved.peak_devices} were approved.",
            )
        )
    for role, floor in approved.minimum_ready.items():
        left = now.minimum_ready.get(role, 0)
        if left < floor:
            reasons.append(
                Reason(
                    "less-ready", f"{role} keeps {left} groups ready, {floor} were approved as the minimum."
                )
            )
    if EVERY_ROW not in now.holds:
        for rule in sorted(approved.holds - now.holds):
            reasons.append(Reason("hold-gone", f'The hold "{rule}" that was approved is gone.'))
    if now.hold_seconds > approved.hold_seconds:
        reasons.append(
            Reason(
                "longer-hold",
                f"A hold may stand {now.hold_seconds} s, {approved.hold_seconds} s were approved.",
            )
        )
    if is_higher(now.risk, approved.risk):
        reasons.append(Reason("higher-risk", f"The risk is {now.risk} now, {approved.risk} was approved."))
    return tuple(reasons)


def stale_reasons(request: Request, present: Present) -> tuple[Reason, ...]:
    """Why votes on this request no longer mean what will happen; empty when they still do.

    Stale are: another content digest, a changed, added or vanished part of the base, worse bounds, a policy
    that asks for more than its snapshot, an operation that is at another step or attempt. Looser policy or
    better bounds change nothing: the snapshot stays in force.
    """
    reasons: list[Reason] = []
    if present.step != request.step:
        reasons.append(Reason("other-step", "The operation is no longer at the step this approval is for."))
    if present.content.digest != request.content.digest:
        reasons.append(Reason("content-changed", "The plan was changed after this request was made."))
    before, after = request.content.base, present.content.base
    for part in sorted({*before, *after}):
        if before.get(part) != after.get(part):
            reasons.append(Reason("base-changed", f"{part} changed in the cluster since the plan was made."))
    reasons.extend(bounds_worse(request.content.bounds, present.content.bounds))
    for slot in tightened(request.slots, present.slots):
        reasons.append(Reason("policy-tightened", f"The policy now also asks for: {slot.describe()}."))
    return tuple(reasons)


def request_state(request: Request, votes: Sequence[Vote], present: Present, *, now: datetime) -> Standing:
    """The state of a request at `now`. `votes` are all its rows in the order they were cast.

    Ends come first and in this order: withdrawn, executed (stays approved), rejected, expired, stale. What is
    left is approved when the votes that count fill every slot, open otherwise. A vote counts when it is that
    person's last word, on this digest and step, cast in the request's lifetime, by an account that may vote.
    """
    if request.withdrawn_at is not None:
        return Standing(WITHDRAWN, (Reason("withdrawn", "The requester withdrew this request."),))
    approvals, rejections = _standing_votes(request, votes, present)
    match = match_slots(request.slots, approvals)
    counted = tuple(sorted(approver.person for approver in approvals))
    if request.executed_at is not None:
        return Standing(APPROVED, counted=counted)
    if rejections:
        names = ", ".join(rejections)
        return Standing(REJECTED, (Reason("rejected", f"Rejected by {names}."),), match.missing, counted)
    if now >= request.expires_at:
        return Standing(
            EXPIRED, (Reason("expired", "Time ran out; nothing was done."),), match.missing, counted
        )
    stale = stale_reasons(request, present)
    if stale:
        return Standing(STALE, stale, match.missing, ())
    state = APPROVED if match.complete else OPEN
    return Standing(state, (), match.missing, counted, request.expires_at)


def passes(request: Request, standing: Standing, *, step: StepKey | None) -> bool:
    """Whether an approval lets exactly this step and attempt (None: the change itself) go on."""
    return standing.state == APPROVED and request.step == step


def refuse_vote(
    vote: Vote,
    voter: Voter,
    request: Request,
    standing: Standing,
    *,
    comment: str = "",
    blocked_by: str | None = None,
    now: datetime,
) -> tuple[Refusal, ...]:
    """Every reason why this vote is not taken; empty means it is.

    `blocked_by` is the sentence of a red gate or of evidence that is too old; it stops approvals, never
    rejections. A rejection needs a comment. A withdrawal is taken from whoever has a vote to withdraw.
    """
    refusals: list[Refusal] = []
    if standing.state != OPEN:
        refusals.append(
            Refusal(
                "request-not-open",
                f"This request is {standing.state}.",
                "Make a new request if it is needed.",
            )
        )
    if vote.digest != request.content.digest or vote.step != request.step:
        refusals.append(
            Refusal(
                "other-content",
                "You voted on another version than the present one.",
                "Read it again, then vote.",
            )
        )
    if vote.choice == REJECT and not comment.strip():
        refusals.append(
            Refusal("comment-missing", "A rejection needs a reason.", "Say what would have to change.")
        )
    if vote.choice == APPROVE and blocked_by:
        refusals.append(Refusal("evidence-not-green", blocked_by, "Wait until it is green, or reject."))
    if vote.choice != WITHDRAW:
        refusals.extend(
            refuse_voter(
                voter,
                slots=request.slots,
                excluded=request.excluded,
                level=request.content.bounds.risk,
                now=now,
            )
        )
    return tuple(refusals)


def _standing_votes(
    request: Request, votes: Iterable[Vote], present: Present
) -> tuple[list[Approver], list[str]]:
    """People whose last word approves or rejects this content at this step, and may."""
    last: dict[str, Vote] = {}
    for vote in votes:
        if (
            vote.digest == request.content.digest
            and vote.step == request.step
            and vote.at < request.expires_at
        ):
            last[vote.person] = vote
    approvals: list[Approver] = []
    rejections: list[str] = []
    for person, vote in last.items():
        voter = present.voters.get(person)
        if voter is None or refuse_counting(voter, slots=request.slots, excluded=request.excluded):
            continue
        if vote.choice == APPROVE:
            approvals.append(Approver(person, voter.roles, voter.groups))
        elif vote.choice == REJECT:
            rejections.append(person)
    return approvals, rejections
