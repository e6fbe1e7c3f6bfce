"""Bells and sweep are each enough alone; doubles, losses and deaths change nothing but the time it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from controlplane.operations.models import Operation, Step
from tests.chaos.engine.processes import Broker, Crew, wait_for
from tests.chaos.engine.verdict import assert_exactly_once, finished

pytestmark = pytest.mark.chaos
Start = Callable[..., list[Operation]]


def steps_done() -> int:
    return Step.objects.filter(state="done").count()


def test_workers_and_broker_are_killed(
    make_crew: Callable[..., Crew], start_toys: Start, broker: Broker
) -> None:
    """60 operations of 5 steps, every bell twice; four times a worker is killed, once the broker with all it
    knew."""
    crew = make_crew(TOY_BELLS="twice", TOY_SLOWNESS="0.15")
    crew.add_worker()
    crew.add_worker()
    crew.start_beat()
    crew.wait_until_up()
    operations = start_toys(60)
    for kill in range(4):
        goal = 25 + 45 * kill
        wait_for(lambda goal=goal: steps_done() >= goal, seconds=90, what=f"{goal} steps done")
        victim = crew.workers[kill % 2]
        victim.kill()
        if kill == 1:
            broker.kill()
            time.sleep(0.5)  # long enough for everybody to meet a closed port
            broker.start()
        victim.start()
    wait_for(lambda: finished(operations), seconds=120, what="all operations end")
    assert_exactly_once(operations)


def test_sweep_alone(
    make_crew: Callable[..., Crew], start_toys: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit rings anything; beat's sweep finds every row."""
    monkeypatch.setattr("controlplane.queue.ring_on_commit", lambda task, argument: None)
    crew = make_crew(TOY_BELLS="never")
    crew.add_worker()
    crew.start_beat()
    crew.wait_until_up()
    operations = start_toys(20)
    wait_for(lambda: finished(operations), seconds=60, what="all operations end")
    assert_exactly_once(operations)


def test_bells_alone(make_crew: Callable[..., Crew], start_toys: Start) -> None:
    """Beat is dead; every commit rings the next step."""
    crew = make_crew(TOY_WAITS="0")
    crew.add_worker()
    crew.wait_until_up()
    operations = start_toys(20)
    wait_for(lambda: finished(operations), seconds=60, what="all operations end")
    assert_exactly_once(operations)
