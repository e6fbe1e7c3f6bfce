"""The states of a recovery combination and the one table of what may lead from one to another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from policy.rollout.refusal import Refusal


class State(StrEnum):
    """Captured only; proved as well; taken out of use by a person."""

    CANDIDATE = "candidate"
    VERIFIED = "verified"
    REVOKED = "revoked"


class Event(StrEnum):
    """What can happen to a combination."""

    VERIFY = "verify"
    REVOKE = "revoke"


TABLE: Mapping[tuple[State, Event], State] = {
    (State.CANDIDATE, Event.VERIFY): State.VERIFIED,
    (State.CANDIDATE, Event.REVOKE): State.REVOKED,
    (State.VERIFIED, Event.REVOKE): State.REVOKED,
}


def transition(state: State | str, event: Event | str) -> State | Refusal:
    """The state after `event`, or why it cannot happen. Raises ValueError for a word that is no state or event."""
    state, event = State(state), Event(event)
    if found := TABLE.get((state, event)):
        return found
    if state is State.REVOKED:
        return Refusal(
            "combination-revoked",
            "this combination was revoked, and stays so",
            "capture the present state as a new combination",
        )
    return Refusal("already-verified", f"this combination is {state} already", "use it as it is")


def is_trusted(state: State | str) -> bool:
    """Whether a restore of it needs no vote beforehand (DESIGN 8)."""
    return State(state) is State.VERIFIED
