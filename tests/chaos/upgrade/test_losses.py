"""Workers are killed and paused at every step of upgrades, of their way back, and of what comes between.

LOCKSTEP_CHAOS=full goes on to every single write, and to an abort and a new upgrade from every point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from controlplane.holds.leftover import LEAK_AFTER
from tests.chaos.engine.processes import Crew
from tests.chaos.upgrade.conftest import PATIENT
from tests.chaos.upgrade.history import History
from tests.chaos.upgrade.judge import RESUMED_WITHIN_S
from tests.chaos.upgrade.orders import (
    ADOPT_STEP,
    AFTER,
    BACK,
    BEFORE,
    COMMIT,
    CURE_STEP,
    FORWARD,
    FREEZE,
    KILL,
    LEAK_STEP,
    REPAIR,
    SETTLE,
    SILENT,
    STOP,
    Order,
    deal,
    everything,
    selection,
)
from tests.chaos.upgrade.verdict import assert_nothing_is_wrong
from tests.chaos.upgrade.wave import ABORT, ADOPT, BREACH, CURE, LEAK, RESTART, STOP_AND_RESUME, Script, Wave

pytestmark = [pytest.mark.chaos, pytest.mark.rig]
FAST = {"profile": "fast"}
# A person aborts while a worker sleeps here, and others go all the way back before it wakes up.
ABORTED_AT = (
    Order(BEFORE, "open_hold", "write 3", STOP),
    Order(AFTER, "write_roles", "write 3", STOP),
    Order(BEFORE, "publish_services", "write 3", STOP),
    Order(AFTER, "hold", "get", STOP),
    Order(COMMIT, "finish", "", STOP),
)
# It wakes up only when another upgrade of the same set stands at its first hold.
RESTARTED_AT = (
    Order(BEFORE, "write_roles", "write 3", STOP),
    Order(BEFORE, "raise_row", "write 3", STOP),
    Order(BEFORE, "release", "write 3", STOP),
)


def between(action: str) -> list[Script]:
    """Upgrades with a stop, with a torn hold, with the fast profile."""
    return [
        Script("stopped", selection(FREEZE, action=action), way=STOP_AND_RESUME),
        Script("torn", selection(REPAIR, action=action), way=BREACH),
        Script("fast", selection(SETTLE, action=action), options=FAST),
    ]


def dealt(name: str, orders: Sequence[Order], hands: int, **options: str) -> list[Script]:
    """So many upgrades with the orders spread over them."""
    return [Script(f"{name}-{number}", hand, **options) for number, hand in enumerate(deal(orders, hands))]


def test_killed_at_every_step(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """Three points of every step there is."""
    wave = make_wave(make_crew(workers=2, children=3))
    up, back = dealt("up", selection(FORWARD), 3), dealt("back", selection(BACK), 2, way=ABORT)
    wave.run([*up, *back, *between(KILL)])
    assert_nothing_is_wrong(wave, history)


def test_paused_at_every_step(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """A worker sleeps past its lease at each of the points; others go on; then it wakes up and goes on as well."""
    wave = make_wave(make_crew(workers=7, **PATIENT))
    up = dealt("up", selection(FORWARD, action=STOP), 3)
    back = dealt("back", selection(BACK, action=STOP), 2, way=ABORT)
    wave.run([*up, *back])
    assert_nothing_is_wrong(wave, history)


def test_a_person_aborts_while_a_worker_is_paused(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """Others go back to the end, some begin anew; then the worker wakes up and goes on where it was."""
    wave = make_wave(make_crew(workers=10, **PATIENT))
    aborted = [Script(f"abort-{n}", [order], asleep=ABORT) for n, order in enumerate(ABORTED_AT)]
    again = [Script(f"again-{n}", [order], asleep=RESTART) for n, order in enumerate(RESTARTED_AT)]
    wave.run([*aborted, *again])
    assert_nothing_is_wrong(wave, history)


@pytest.mark.chaos_full
@pytest.mark.timeout(600)
def test_killed_at_every_write(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """Before and after every write that any step makes."""
    wave = make_wave(make_crew(workers=2, children=4))
    up, back = dealt("up", everything(FORWARD), 4), dealt("back", everything(BACK), 4, way=ABORT)
    wave.run([*up, *back], limit_s=400)
    assert_nothing_is_wrong(wave, history)


@pytest.mark.chaos_full
@pytest.mark.timeout(600)
def test_paused_at_every_write(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """The same, asleep past the lease."""
    wave = make_wave(make_crew(workers=14, **PATIENT))
    up = dealt("up", everything(FORWARD, action=STOP), 4)
    back = dealt("back", everything(BACK, action=STOP), 4, way=ABORT)
    wave.run([*up, *back, *between(STOP)], limit_s=400)
    assert_nothing_is_wrong(wave, history)


@pytest.mark.chaos_full
@pytest.mark.parametrize("action", [KILL, STOP])
def test_lost_where_others_interfere(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History, action: str
) -> None:
    """Steps that only somebody else's doing calls for: cure a start, scale a leaked set, adopt."""
    begin, back = Order(BEFORE, "read_revision"), Order(BEFORE, "reach_back")
    wave = make_wave(make_crew(workers=6, **PATIENT))
    wave.run(
        [
            Script("cured", [begin, *selection(CURE_STEP, action=action)], way=CURE),
            Script("leaked", [back, *selection(LEAK_STEP, action=action)], way=LEAK),
            Script("adopted", selection(ADOPT_STEP, action=action), way=ADOPT),
        ]
    )
    # A revision left behind is given 20 s to go by itself before a step scales it down.
    assert_nothing_is_wrong(wave, history, within_s=RESUMED_WITHIN_S + LEAK_AFTER)


@pytest.mark.chaos_full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("asleep", "points"), [(ABORT, {BEFORE, AFTER, COMMIT}), (RESTART, {BEFORE})])
def test_aborted_from_every_point(
    make_crew: Callable[..., Crew],
    make_wave: Callable[[Crew], Wave],
    history: History,
    asleep: str,
    points: set[str],
) -> None:
    """A worker sleeps at each point of the way up through an abort, or through an abort and a new upgrade."""
    wave = make_wave(make_crew(workers=12, **PATIENT))
    orders = [
        order
        for order in selection(FORWARD, action=STOP)
        if (order.point == COMMIT if order.step in SILENT else order.point in points)
    ]
    for begin in range(0, len(orders), 9):
        batch = enumerate(orders[begin : begin + 9], start=begin)
        wave.run([Script(f"at-{number}", [order], asleep=asleep) for number, order in batch])
    assert_nothing_is_wrong(wave, history)
