"""A rig, an installation beside it, and a crew of real processes that do its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from controlplane import queue
from deploy.rig import Rig
from tests.chaos.engine.conftest import database_url
from tests.chaos.engine.processes import Broker, Crew
from tests.chaos.upgrade.history import History, history_of
from tests.chaos.upgrade.wave import Manned, Wave
from tests.cluster.conftest import namespace, rig
from tests.cluster.driving import install_target, release_all

__all__ = ["namespace", "rig"]

SMALL = {
    "LOCKSTEP_CALL_TIMEOUT": "1.5",
    "LOCKSTEP_TASK_HARD_LIMIT": "2.5",
    "LOCKSTEP_LEASE": "3",
    "LOCKSTEP_SWEEP": "0.5",
    "LOCKSTEP_TICK": "0.25",
}
PATIENT = {"CHAOS_PATIENT": "1"}


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker to be killed; bells of this process go there as well."""
    one = Broker(tmp_path)
    one.start()
    app = Celery("bells", broker=one.url)
    app.conf.task_default_queue = queue.QUEUE
    app.conf.task_routes = {queue.CARRY_OUT_RUN: {"queue": queue.RUNS_QUEUE}}

    def ring(task: str, argument: Any) -> None:
        app.send_task(task, args=[str(argument)], expires=60)

    monkeypatch.setattr(queue, "ring", ring)
    yield one
    app.close()
    one.kill()


@pytest.fixture
def lockstep(rig: Rig, transactional_db: None, settings: Any) -> Iterator[Manned]:
    """An installation that owns the rig. Production, so that every hold takes votes."""
    install_target(rig)
    settings.LOCKSTEP_KUBECONFIG = str(rig.kubeconfig("lockstep"))
    yield Manned(rig, environment="production")
    release_all(rig)


@pytest.fixture
def history(rig: Rig, namespace: str) -> Iterator[History]:
    """Everything that is written to the sets of the test."""
    with history_of(rig.kubeconfig("admin"), namespace) as following:
        yield following


@pytest.fixture
def make_crew(lockstep: Manned, broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    """`make_crew(workers=2, children=2, CHAOS_BELLS="twice")`: a crew with this in its environment; with
    production's times by `real=True`."""
    crews: list[Crew] = []

    def make(
        *,
        workers: int,
        children: int = 1,
        beat: bool = True,
        watch: bool = False,
        real: bool = False,
        **extra: str,
    ) -> Crew:
        env = {
            "DATABASE_URL": database_url(),
            "LOCKSTEP_BROKER_URL": broker.url,
            "LOCKSTEP_KUBECONFIG": str(lockstep.rig.kubeconfig("lockstep")),
            "LOCKSTEP_FAILPOINTS": str(tmp_path / "failpoints"),
            "LOCKSTEP_LOG_LEVEL": "INFO",
        }
        (tmp_path / "failpoints").mkdir(exist_ok=True)
        app = (
            "tests.chaos.upgrade.crew_app"
            if any(key.startswith("CHAOS_") for key in extra)
            else "workers.app"
        )
        crew = Crew({**os.environ, **env, **({} if real else SMALL), **extra}, tmp_path, app)
        crews.append(crew)
        for _ in range(workers):
            crew.add_worker(children=children)
        if beat:
            crew.start_beat()
        if watch:
            crew.start_watch()
        crew.wait_until_up()
        lockstep.crewed = True
        return crew

    yield make
    lockstep.crewed = False
    for crew in crews:
        crew.end()


@pytest.fixture
def make_wave(lockstep: Manned, history: History, namespace: str, tmp_path: Path) -> Callable[[Crew], Wave]:
    """`make_wave(crew)`: scripts to be played by that crew."""

    def make(crew: Crew) -> Wave:
        return Wave(lockstep, crew, tmp_path / "failpoints", namespace)

    return make
