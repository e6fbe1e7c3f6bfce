"""The whole table, written down a second time as text, and what holds for every sequence of events."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policy.rollout.machine import OUTCOMES, Event, Phase, State, allowed_verbs, transition
from policy.rollout.refusal import Refusal

# Rows: event. Columns: from working, waiting, held; forward / going back. A dash is a refusal by its code.
EXPECTED = """
                  working                     waiting                     held
start             -already-started            -already-started            -already-started
promote           -not-at-a-hold/-going-back  working/-going-back         -held/-going-back
retry             -not-held                   -not-held                   working
resume            -not-held                   -not-held                   working
adopt             -not-held                   -not-held                   working
stop              working                     working                     working
abort             working                     working                     working
supersede         superseded                  superseded                  superseded
step-done         working                     working                     -held
look-again        working                     working                     -held
wait              waiting                     waiting                     -held
hold              held                        held                        held
attempts-used-up  held                        held                        -held
all-steps-done    succeeded/-going-back       succeeded/-going-back       -held
abort-ended       -not-going-back/aborted     -not-going-back/aborted     -held
rolled-back       -not-going-back/rolled-back -not-going-back/rolled-back -held
abort-failed      -not-going-back/failed      -not-going-back/failed      -held
"""


def cells() -> list[tuple[str, str, str, str]]:
    header, *lines = EXPECTED.strip().splitlines()
    found = []
    for line in lines:
        event, *columns = line.split()
        for state, cell in zip(header.split(), columns, strict=True):
            forward, _, back = cell.partition("/")
            found += [(event, state, "forward", forward), (event, state, "aborting", back or forward)]
    return found


@pytest.mark.parametrize(("event", "state", "phase", "expected"), cells())
def test_the_table(event: str, state: str, phase: str, expected: str) -> None:
    result = transition(state, phase, event)
    if expected.startswith("-"):
        assert isinstance(result, Refusal)
        assert result.code == expected[1:]
        assert result.sentence
        assert result.next_action
        return
    assert not isinstance(result, Refusal)
    assert result == (State(expected), Phase.ABORTING if event == "abort" else Phase(phase))


def test_the_table_here_is_complete() -> None:
    open_states = [state for state in State if state not in OUTCOMES]
    assert {cell[:3] for cell in cells()} == set(product(Event, open_states, Phase))


@pytest.mark.parametrize(("state", "phase", "event"), list(product(sorted(OUTCOMES), Phase, Event)))
def test_an_outcome_accepts_nothing(state: State, phase: Phase, event: Event) -> None:
    result = transition(state, phase, event)
    assert isinstance(result, Refusal)
    assert result.code == "finished"
    assert allowed_verbs(state, phase) == ()


@pytest.mark.parametrize("event", Event)
def test_only_start_begins(event: Event) -> None:
    result = transition(None, Phase.FORWARD, event)
    if event is Event.START:
        assert result == (State.WORKING, Phase.FORWARD)
    else:
        assert isinstance(result, Refusal)
        assert result.code == "not-started"


def test_words_that_are_none() -> None:
    with pytest.raises(ValueError, match="paused"):
        transition("paused", "forward", "abort")
    with pytest.raises(ValueError, match="undo"):
        transition("working", "forward", "undo")


def test_buttons() -> None:
    assert allowed_verbs("working", "forward") == (Event.STOP, Event.ABORT)
    assert allowed_verbs("waiting", "forward") == (Event.PROMOTE, Event.STOP, Event.ABORT)
    assert allowed_verbs("held", "aborting") == (
        Event.RETRY,
        Event.RESUME,
        Event.STOP,
        Event.ADOPT,
        Event.ABORT,
    )


class OperationLife(RuleBasedStateMachine):
    """Any sequence of events, as workers and people may bring them."""

    state: State
    phase: Phase

    @initialize()
    def begin(self) -> None:
        result = transition(None, Phase.FORWARD, Event.START)
        assert not isinstance(result, Refusal)
        self.state, self.phase = result
        self.aborts = 0

    @rule(event=st.sampled_from(Event))
    def anything(self, event: Event) -> None:
        before = (self.state, self.phase)
        result = transition(self.state, self.phase, event)
        if isinstance(result, Refusal):
            return
        self.state, self.phase = result
        assert before[0] not in OUTCOMES
        self.aborts += event is Event.ABORT
        if before[0] is State.HELD and self.state not in {State.HELD, State.SUPERSEDED}:
            people = {Event.RETRY, Event.RESUME, Event.ADOPT, Event.STOP, Event.ABORT}
            assert event in people
        if before[1] is Phase.ABORTING:
            assert self.phase is Phase.ABORTING

    @rule()
    @precondition(lambda self: self.state not in OUTCOMES)
    def abort_twice(self) -> None:
        once = transition(self.state, self.phase, Event.ABORT)
        assert once == (State.WORKING, Phase.ABORTING)
        assert transition(*once, Event.ABORT) == once

    @invariant()
    def there_is_a_way_out(self) -> None:
        if self.state not in OUTCOMES:
            assert Event.ABORT in allowed_verbs(self.state, self.phase)

    @invariant()
    def outcomes_fit_the_way(self) -> None:
        if self.state is State.SUCCEEDED:
            assert self.aborts == 0
        if self.state in {State.ABORTED, State.ROLLED_BACK, State.FAILED}:
            assert self.aborts > 0
        assert (self.phase is Phase.ABORTING) == (self.aborts > 0)


TestOperationLife = OperationLife.TestCase
TestOperationLife.settings = settings(max_examples=200, stateful_step_count=30)
