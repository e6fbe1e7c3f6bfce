"""With the lease and the sweep of production: resumed in less than 30 s."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.engine.processes import Crew
from tests.chaos.upgrade.conftest import PATIENT
from tests.chaos.upgrade.history import History
from tests.chaos.upgrade.orders import AFTER, BEFORE, COMMIT, STOP, Order
from tests.chaos.upgrade.verdict import assert_nothing_is_wrong
from tests.chaos.upgrade.wave import ABORT, Script, Wave

pytestmark = [pytest.mark.chaos, pytest.mark.rig]


def test_resumed_within_30_seconds(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """One upgrade loses its worker, another one's worker sleeps past the lease."""
    wave = make_wave(make_crew(workers=3, real=True, watch=True, **PATIENT))
    killed = Script("killed", [Order(AFTER, "raise_row", "write 3")])
    paused = Script("paused", [Order(BEFORE, "raise_row", "write 3", STOP)])
    wave.run([killed, paused])
    assert_nothing_is_wrong(wave, history)


@pytest.mark.chaos_full
@pytest.mark.timeout(600)
def test_every_part_of_the_way_at_real_times(
    make_crew: Callable[..., Crew], make_wave: Callable[[Crew], Wave], history: History
) -> None:
    """Five upgrades, each with losses at another part of its way."""
    wave = make_wave(make_crew(workers=3, children=2, real=True, watch=True))
    wave.run(
        [
            Script("begin", [Order(AFTER, "open_hold", "write 3"), Order(COMMIT, "prove_hold")]),
            Script("write", [Order(AFTER, "write_roles", "write 3"), Order(BEFORE, "read_revision")]),
            Script("rows", [Order(COMMIT, "publish_services"), Order(COMMIT, "hold")]),
            Script(
                "end", [Order(COMMIT, "verify"), Order(AFTER, "release", "write 3"), Order(COMMIT, "finish")]
            ),
            Script("back", [Order(AFTER, "write_back", "write 3"), Order(COMMIT, "reach_back")], way=ABORT),
        ],
        limit_s=300,
    )
    assert_nothing_is_wrong(wave, history)
