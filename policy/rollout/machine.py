"""The states of an operation and the one table of what may lead from one to another.

While it runs an operation is working, waiting (for a person) or held (stopped by a finding). It goes forward
or, once it is aborted, back. Five outcomes end it: succeeded, aborted (a person sent it back and the old
revision serves), rolled-back (its own rule did, such as the chosen end of a hold), superseded (another
operation took its targets), failed (it went back and the old revision does not serve).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policy.rollout.refusal import Refusal


class State(StrEnum):
    """What an operation is doing, or how it ended."""

    WORKING = "working"
    WAITING = "waiting"
    HELD = "held"
    SUCCEEDED = "succeeded"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"


class Phase(StrEnum):
    """Forward, or on the way back."""

    FORWARD = "forward"
    ABORTING = "aborting"


class Event(StrEnum):
    """What can happen to an operation. Verbs of people first, then what the engine finds."""

    START = "start"
    PROMOTE = "promote"
    RETRY = "retry"
    RESUME = "resume"
    STOP = "stop"
    ADOPT = "adopt"
    ABORT = "abort"
    SUPERSEDE = "supersede"
    STEP_DONE = "step-done"
    LOOK_AGAIN = "look-again"  # waits for the cluster or the clock, not for a person
    WAIT = "wait"  # waits for a person
    HOLD = "hold"  # a finding stops it
    ATTEMPTS_USED_UP = "attempts-used-up"
    ALL_STEPS_DONE = "all-steps-done"
    ABORT_ENDED = "abort-ended"  # back, by a person's word
    ROLLED_BACK = "rolled-back"  # back, by its own rule
    ABORT_FAILED = "abort-failed"  # went back, but the old revision does not serve


OUTCOMES = frozenset({State.SUCCEEDED, State.ABORTED, State.SUPERSEDED, State.ROLLED_BACK, State.FAILED})
VERBS = (Event.PROMOTE, Event.RETRY, Event.RESUME, Event.STOP, Event.ADOPT, Event.ABORT)

_MOVING = frozenset({State.WORKING, State.WAITING})
_HELD = frozenset({State.HELD})
_OPEN = _MOVING | _HELD
_FORWARD = frozenset({Phase.FORWARD})
_BACK = frozenset({Phase.ABORTING})
_ANY_WAY = _FORWARD | _BACK


@dataclass(frozen=True, slots=True)
class _Move:
    """One line of the table: from which states and phases, to which state; `phase` None keeps the phase."""

    states: frozenset[State]
    phases: frozenset[Phase]
    state: State
    phase: Phase | None = None


# Stop leads to work, not to rest: the floors and ceilings have still to be set to the live counts.
TABLE: Mapping[Event, _Move] = {
    Event.PROMOTE: _Move(frozenset({State.WAITING}), _FORWARD, State.WORKING),
    Event.RETRY: _Move(_HELD, _ANY_WAY, State.WORKING),
    Event.RESUME: _Move(_HELD, _ANY_WAY, State.WORKING),
    Event.ADOPT: _Move(_HELD, _ANY_WAY, State.WORKING),
    Event.STOP: _Move(_OPEN, _ANY_WAY, State.WORKING),
    Event.ABORT: _Move(_OPEN, _ANY_WAY, State.WORKING, Phase.ABORTING),
    Event.SUPERSEDE: _Move(_OPEN, _ANY_WAY, State.SUPERSEDED),
    Event.STEP_DONE: _Move(_MOVING, _ANY_WAY, State.WORKING),
    Event.LOOK_AGAIN: _Move(_MOVING, _ANY_WAY, State.WORKING),
    Event.WAIT: _Move(_MOVING, _ANY_WAY, State.WAITING),
    Event.HOLD: _Move(_OPEN, _ANY_WAY, State.HELD),
    Event.ATTEMPTS_USED_UP: _Move(_MOVING, _ANY_WAY, State.HELD),
    Event.ALL_STEPS_DONE: _Move(_MOVING, _FORWARD, State.SUCCEEDED),
    Event.ABORT_ENDED: _Move(_MOVING, _BACK, State.ABORTED),
    Event.ROLLED_BACK: _Move(_MOVING, _BACK, State.ROLLED_BACK),
    Event.ABORT_FAILED: _Move(_MOVING, _BACK, State.FAILED),
}


def transition(
    state: State | str | None, phase: Phase | str, event: Event | str
) -> tuple[State, Phase] | Refusal:
    """State and phase after `event`, or why it cannot happen.

    `state` None is an operation that does not exist yet: only start makes one. An outcome accepts nothing.
    Abort is accepted in every other state, as often as it is asked for. Raises ValueError for a word that is
    no state, phase or event.
    """
    event, phase = Event(event), Phase(phase)
    if state is None:
        if event is Event.START:
            return State.WORKING, Phase.FORWARD
        return Refusal("not-started", "the operation has not been started", "start it first")
    state = State(state)
    move = TABLE.get(event)
    if move is None or state not in move.states or phase not in move.phases:
        return _refuse(state, phase, event)
    return move.state, move.phase or phase


def allowed_verbs(state: State | str, phase: Phase | str) -> tuple[Event, ...]:
    """What a person can ask for now, in the order of the buttons."""
    return tuple(verb for verb in VERBS if not isinstance(transition(state, phase, verb), Refusal))


def _refuse(state: State, phase: Phase, event: Event) -> Refusal:
    if state in OUTCOMES:
        return Refusal(
            "finished",
            f"the operation has ended: it is {state}",
            "plan a new change; to go back, plan the earlier revision",
        )
    if event is Event.START:
        return Refusal("already-started", f"the operation runs: it is {state}", "follow the one that runs")
    if event is Event.PROMOTE:
        return _refuse_promote(state, phase)
    if event in {Event.RETRY, Event.RESUME, Event.ADOPT}:
        return Refusal(
            "not-held",
            f"{event} needs a held operation; this one is {state}",
            "promote it when its hold is reached" if state is State.WAITING else "let it go on",
        )
    if state is State.HELD:
        return Refusal("held", "the operation is held: nothing moves it on by itself", _WAY_OUT)
    if phase is Phase.ABORTING:
        return Refusal(
            "going-back",
            "the operation is on its way back: it can end aborted, rolled-back or failed only",
            "let the last step say whether the old revision serves",
        )
    return Refusal(
        "not-going-back",
        "the operation has not been aborted, so no way back can end",
        "abort it first if it shall go back",
    )


_WAY_OUT = "mend what the finding names, then retry or resume; or abort"


def _refuse_promote(state: State, phase: Phase) -> Refusal:
    if phase is Phase.ABORTING:
        return Refusal(
            "going-back",
            "the operation is on its way back and will not pass a hold again",
            "let it end, then plan the change again",
        )
    if state is State.HELD:
        return Refusal("held", "a finding holds the operation; promote passes a hold, no finding", _WAY_OUT)
    return Refusal(
        "not-at-a-hold", "the operation is not waiting at a hold", "promote it when it reaches the next hold"
    )
