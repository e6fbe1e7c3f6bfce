"""Who may vote on a request. Every rule that refuses says which, in a sentence, and what to do instead.

The rules hold for everybody, superusers included: the point of a second person is that nobody acts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.approval.quorum import Slot
from policy.approval.risk import HIGH, Level

RECENT_SIGN_IN = timedelta(minutes=15)
RECENT_MINTING = timedelta(days=30)

REQUESTER = "requester"
EDITOR = "editor"
RESPONSIBLE = "responsible-person"
TOKEN_OWNER = "token-owner"
TOKEN_MINTER = "token-minter"

_EXCLUSION_SENTENCE = {
    REQUESTER: "You made this request; somebody else has to agree to it.",
    EDITOR: "You edited the plan of this request, so it is yours too.",
    RESPONSIBLE: "You answer for the token that made this request.",
    TOKEN_OWNER: "The token that made this request is yours.",
    TOKEN_MINTER: "You recently made a token of the account that made this request.",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not allowed: a stable kebab-case code, a sentence, and the next action."""

    code: str
    sentence: str
    next_action: str


@dataclass(frozen=True, slots=True)
class Voter:
    """An account at the moment it votes. `roles` are those held in the scope of the request.

    `by_token` is true when the call itself carried an API token, even a token of a person.
    """

    person: str
    roles: frozenset[str]
    groups: frozenset[str] = frozenset()
    is_person: bool = True
    by_token: bool = False
    active: bool = True
    superuser: bool = False
    signed_in_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TokenOrigin:
    """The token behind a request that automation made; `minted` holds (who, when) for the owner's tokens."""

    owner: str
    responsible: str
    minted: tuple[tuple[str, datetime], ...] = ()


def exclusions(
    *, requester: str, editors: Iterable[str], token: TokenOrigin | None, now: datetime
) -> dict[str, str]:
    """Everybody who may not vote on a request, each with one code: the strongest reason wins.

    Excluded are the requester, everyone who edited the plan, and for a request made with a token its
    responsible person, its owner, and whoever minted a token of that owner in the last 30 days.
    """
    excluded: dict[str, str] = {}
    if token is not None:
        for person, at in token.minted:
            if now - at <= RECENT_MINTING:
                excluded[person] = TOKEN_MINTER
        excluded[token.owner] = TOKEN_OWNER
        excluded[token.responsible] = RESPONSIBLE
    for person in editors:
        excluded[person] = EDITOR
    excluded[requester] = REQUESTER
    return excluded


def refuse_voter(
    voter: Voter, *, slots: Iterable[Slot], excluded: Mapping[str, str], level: Level, now: datetime
) -> tuple[Refusal, ...]:
    """Every reason why this account may not vote now; empty means it may.

    `excluded` comes from exclusions() and is kept with the request. A high risk asks for a sign-in within the
    last 15 minutes.
    """
    refusals = [*refuse_counting(voter, slots=slots, excluded=excluded)]
    if voter.by_token and voter.is_person:
        refusals.append(
            Refusal("token-vote", "Votes are not taken through API tokens.", "Sign in and vote in person.")
        )
    if level == HIGH and not _signed_in_recently(voter, now):
        minutes = int(RECENT_SIGN_IN.total_seconds() // 60)
        refusals.append(
            Refusal(
                "sign-in-too-old",
                f"A high-risk request needs a sign-in within the last {minutes} minutes.",
                "Sign in again, then vote.",
            )
        )
    return tuple(refusals)


def refuse_counting(
    voter: Voter, *, slots: Iterable[Slot], excluded: Mapping[str, str]
) -> tuple[Refusal, ...]:
    """Every reason why a vote of this account does not count, also long after it was cast.

    These rules are checked again when the change is about to run: an account that was closed or lost its role
    in between no longer carries the quorum.
    """
    refusals: list[Refusal] = []
    if not voter.is_person:
        refusals.append(
            Refusal("service-account", "Service accounts never vote.", "Ask a person with the role to vote.")
        )
    if not voter.active:
        refusals.append(
            Refusal("account-inactive", "This account is closed.", "Ask an administrator to open it again.")
        )
    if voter.person in excluded:
        code = excluded[voter.person]
        sentence = _EXCLUSION_SENTENCE.get(code, "You took part in making this request.")
        refusals.append(Refusal(code, sentence, "Ask somebody who took no part in it to vote."))
    missing = _missing_role(voter, slots)
    if missing is not None:
        refusals.append(missing)
    return tuple(refusals)


def _missing_role(voter: Voter, slots: Iterable[Slot]) -> Refusal | None:
    wanted = sorted({slot.role for slot in slots})
    if not wanted or voter.roles & set(wanted):
        return None
    sentence = f"A vote here needs the role {' or '.join(wanted)} in this scope."
    if voter.superuser:
        sentence += " Superuser rights do not stand in for it."
    return Refusal(
        "role-missing", sentence, "Ask an administrator for the role, or somebody who has it to vote."
    )


def _signed_in_recently(voter: Voter, now: datetime) -> bool:
    return voter.signed_in_at is not None and timedelta(0) <= now - voter.signed_in_at <= RECENT_SIGN_IN
