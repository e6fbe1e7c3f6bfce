"""Bells and sweep are each enough alone; a broker that forgets everything costs seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.chaos.engine.processes import Broker, Crew
from tests.chaos.upgrade.history import History
from tests.chaos.upgrade.orders import AFTER, BEFORE, Order
from tests.chaos.upgrade.verdict import assert_nothing_is_wrong
from tests.chaos.upgrade.wave import ABORT, Script, Wave

pytestmark = [pytest.mark.chaos, pytest.mark.rig]


def scripts() -> list[Script]:
    """One upgrade up, one up and back, each with one loss."""
    return [
        Script("up", [Order(AFTER, "raise_row", "write 3")]),
        Script("back", [Order(BEFORE, "write_back", "write 3")], way=ABORT),
    ]


def test_the_broker_dies_and_every_bell_rings_twice(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History, broker: Broker
) -> None:
    """Two workers; the broker loses all it knew, twice; each worker is killed whole once and started again."""
    crew = make_crew(workers=2, children=2, CHAOS_BELLS="twice")
    wave = make_wave(crew)
    up, back = played = scripts()
    wave.begin(played)

    def after(script: Script, steps: int) -> None:
        done = script.operation.steps.filter(state="done")
        wave.until(f"{steps} steps of {script.name}", lambda: done.count() >= steps, limit_s=60)

    def lose_the_broker() -> None:
        broker.kill()
        time.sleep(0.5)  # long enough for everybody to meet a closed port
        broker.start()

    after(up, 2)
    lose_the_broker()
    after(back, 4)
    crew.workers[0].kill()
    crew.workers[0].start()
    after(up, 8)
    lose_the_broker()
    wave.until("both have ended", lambda: up.ended and back.ended, limit_s=90)
    assert_nothing_is_wrong(wave, history)


def test_beat_is_dead(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """Commits ring, and the watch rings what is due."""
    wave = make_wave(make_crew(workers=2, beat=False, watch=True))
    wave.run(scripts())
    assert_nothing_is_wrong(wave, history)


def test_no_commit_rings(
    make_crew: Callable[..., Crew],
    make_wave: Callable[[Crew], Wave],
    history: History,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beat's sweep finds every row, on the way up and on the way back."""
    monkeypatch.setattr("controlplane.queue.ring_on_commit", lambda task, argument: None)
    wave = make_wave(make_crew(workers=2, CHAOS_BELLS="never", LOCKSTEP_TICK="0.1"))
    wave.run(scripts()[1:])
    assert_nothing_is_wrong(wave, history)
