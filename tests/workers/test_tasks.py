"""The tasks are thin, named as the doorbell names them, and configured so that nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from controlplane import queue
from workers import tasks

UPKEEP = {queue.TICK, queue.RECONCILE, queue.SEAL_AUDIT, queue.PRUNE}
NAMES = {queue.ADVANCE, queue.WAKE, queue.CARRY_OUT_RUN, *UPKEEP}


@pytest.fixture(scope="module")
def app() -> Any:
    from workers.app import app as real

    return real


def test_every_bell_has_its_task(app: Any) -> None:
    ours = {name for name in app.tasks if name.startswith("lockstep.")}
    assert ours == NAMES


def test_the_settings_that_keep_work(app: Any) -> None:
    conf = app.conf
    assert conf.task_acks_late and conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result and conf.result_backend is None
    assert conf.task_time_limit == settings.LOCKSTEP_TASK_HARD_LIMIT < settings.LOCKSTEP_LEASE
    assert conf.worker_soft_shutdown_timeout > 0


def test_a_bell_of_beat_does_not_outlive_the_next(app: Any) -> None:
    for entry in app.conf.beat_schedule.values():
        assert entry["options"]["expires"] <= max(1.0, entry["schedule"])
    schedules = {name: entry["schedule"] for name, entry in app.conf.beat_schedule.items()}
    assert schedules[queue.RECONCILE] == settings.LOCKSTEP_SWEEP
    assert schedules[queue.SEAL_AUDIT] == 1.0


def test_upkeep_does_not_queue_behind_bells(app: Any) -> None:
    served = {one.name for one in app.conf.task_queues}
    routes = {name: app.amqp.router.route({}, name)["queue"].name for name in NAMES}
    assert set(routes.values()) == served
    upkeep = {name for name, queue_name in routes.items() if queue_name == queue.UPKEEP_QUEUE}
    assert upkeep == UPKEEP
    assert routes[queue.CARRY_OUT_RUN] == queue.RUNS_QUEUE


def test_a_wake_is_followed_by_a_look(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(tasks.engine, "advance", lambda operation_id, **rest: looked.append(operation_id))
    monkeypatch.setattr(tasks.engine, "wake", lambda operation_id: operation_id == 1)
    app.tasks[queue.WAKE].run("1")
    app.tasks[queue.WAKE].run("2")
    assert looked == [1]
    app.tasks[queue.ADVANCE].run("3")
    assert looked == [1, 3]


@pytest.mark.django_db
def test_upkeep_calls_its_services(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(tasks.sweep, "ring_due", lambda: called.append("tick"))
    monkeypatch.setattr(tasks.sweep, "reconcile", lambda: called.append("reconcile"))
    monkeypatch.setattr(tasks, "seal_events", lambda: called.append("seal"))
    for name in (queue.TICK, queue.RECONCILE, queue.SEAL_AUDIT):
        app.tasks[name].run()
    assert called == ["tick", "reconcile", "seal"]


def test_a_bell_that_cannot_be_rung_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from kombu.exceptions import OperationalError

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr(queue.configure(), "send_task", broken)
    queue.ring(queue.ADVANCE, 1)
