"""Workers are killed and paused around the pausing and giving back of scalers: each is paused once, given back once,
and as before in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from deploy.rig import Api
from tests.chaos.engine.processes import Crew
from tests.chaos.upgrade.conftest import PATIENT
from tests.chaos.upgrade.history import History
from tests.chaos.upgrade.orders import AFTER, BEFORE, COMMIT, KILL, STOP, Order
from tests.chaos.upgrade.verdict import assert_nothing_is_wrong
from tests.chaos.upgrade.wave import ABORT, Manned, Script, Wave
from tests.cluster.scalers import as_before, history, hpa, pauses_of

pytestmark = [pytest.mark.chaos, pytest.mark.rig]
Json = dict[str, Any]
PAUSE, GIVE_BACK = "holds.pause_scalers", "holds.give_back_scalers"
# The third write of a claim is the scaler's: two fence, and a dry run is none.
POINTS = ((BEFORE, "write 3"), (AFTER, "write 3"), (COMMIT, ""))


@dataclass
class ScaledWave(Wave):
    """Each set has a scaler on it before its first upgrade is planned."""

    scalers: dict[str, Json] = field(default_factory=dict)

    def start(self, script: Script, *, image: str, orders: Sequence[Order] = ()) -> None:
        """A scaler with a minimum that the upgrade goes below."""
        client = self.lockstep.rig.client("stranger")
        if script.name not in self.scalers:
            live = self.lockstep.counts(self.namespace, script.name)
            (label,) = {revision for revision, _ in live}
            child = f"{script.name}-{label}-prefill"
            made = hpa(self.namespace, child=child, name=script.name, minReplicas=2)
            self.scalers[script.name] = client.create(made)
        super().start(script, image=image, orders=orders)


@pytest.fixture
def make_scaled_wave(
    lockstep: Manned, history: History, namespace: str, tmp_path: Any
) -> Callable[[Crew], ScaledWave]:
    def make(crew: Crew) -> ScaledWave:
        return ScaledWave(lockstep, crew, tmp_path / "failpoints", namespace)

    return make


def pauses_seen(client: Api, scaler: Json) -> list[bool]:
    """Whether it was paused, at each change of that, as the API server has stored it."""
    return pauses_of(history(client, scaler))


def scripts(action: str) -> list[Script]:
    """Every point of both steps, on the way up and on the way back."""
    up = [
        Script(f"up-{number}", [Order(point, PAUSE, call, action), Order(point, GIVE_BACK, call, action)])
        for number, (point, call) in enumerate(POINTS)
    ]
    back = [
        Script(f"back-{number}", [Order(point, GIVE_BACK, call, action)], way=ABORT)
        for number, (point, call) in enumerate(POINTS)
    ]
    return [*up, *back]


def overtaken(crew: Crew) -> int:
    """How many claims have ended with nothing written, as the workers' logs say."""
    return sum(
        path.read_text(errors="replace").count("claim_overtaken") for path in crew.folder.glob("*.log")
    )


def assert_given_back(wave: ScaledWave) -> None:
    client = wave.lockstep.rig.client("admin")
    for name, scaler in wave.scalers.items():
        assert as_before(client.get(client.path(scaler))) == as_before(scaler), (name, wave.story())
        seen = pauses_seen(client, scaler)
        assert seen == [False, True, False], (name, seen, wave.story())


@pytest.mark.parametrize("action", [KILL, STOP])
def test_lost_around_a_scaler(
    make_crew: Callable[..., Crew],
    make_scaled_wave: Callable[[Crew], ScaledWave],
    history: History,
    action: str,
) -> None:
    wave = make_scaled_wave(
        make_crew(workers=7, **PATIENT) if action == STOP else make_crew(workers=2, children=3)
    )
    wave.run(scripts(action))
    assert_nothing_is_wrong(wave, history)
    assert_given_back(wave)


def test_aborted_while_a_worker_sleeps_around_a_scaler(
    make_crew: Callable[..., Crew], make_scaled_wave: Callable[[Crew], ScaledWave], history: History
) -> None:
    """Others go all the way back; then the worker wakes up with its pause unwritten, unanswered or uncommitted."""
    wave = make_scaled_wave(make_crew(workers=6, **PATIENT))
    wave.run(
        [
            Script(f"asleep-{number}", [Order(point, PAUSE, call, STOP)], asleep=ABORT)
            for number, (point, call) in enumerate(POINTS)
        ]
    )
    assert sum(len(script.pauses) for script in wave.scripts) == len(POINTS)
    # The one that slept at its commit has lost its session to the database, and says nothing.
    wave.until("the others to be overtaken", lambda: overtaken(wave.crew) >= len(POINTS) - 1, limit_s=30)
    assert_nothing_is_wrong(wave, history)
    client = wave.lockstep.rig.client("admin")
    for name, scaler in wave.scalers.items():
        assert as_before(client.get(client.path(scaler))) == as_before(scaler), (name, wave.story())
        assert pauses_seen(client, scaler)[-1] is False
