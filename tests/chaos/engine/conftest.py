"""A crew per test: its own broker, the test's database, small lease and sweep unless a test wants real
ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from celery import Celery
from django.db import connection

from controlplane import queue
from controlplane.operations.models import Operation
from tests.chaos.engine.processes import Broker, Crew
from tests.chaos.engine.world import STEPS_PER_OPERATION, TABLES
from tests.conftest import make_cast
from tests.controlplane.operations.toy import make_cluster, make_operation

SMALL = {
    "LOCKSTEP_CALL_TIMEOUT": "1",
    "LOCKSTEP_TASK_HARD_LIMIT": "3",
    "LOCKSTEP_LEASE": "4",
    "LOCKSTEP_SWEEP": "1",
    "LOCKSTEP_TICK": "0.5",
}


def database_url() -> str:
    """The address of the test's database."""
    parts = connection.settings_dict
    password = quote(str(parts["PASSWORD"]), safe="")
    return f"postgresql://{parts['USER']}:{password}@{parts['HOST']}:{parts['PORT']}/{parts['NAME']}"


@pytest.fixture
def world(transactional_db: None) -> None:
    """Empty toy tables."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker to be killed; bells of this process go there as well."""
    one = Broker(tmp_path)
    one.start()
    app = Celery("bells", broker=one.url)
    app.conf.task_default_queue = queue.QUEUE

    def ring(task: str, argument: Any) -> None:
        app.send_task(task, args=[str(argument)], expires=60)

    monkeypatch.setattr(queue, "ring", ring)
    yield one
    app.close()
    one.kill()


@pytest.fixture
def make_crew(tmp_path: Path, world: None, broker: Broker) -> Iterator[Callable[..., Crew]]:
    """`make_crew(TOY_BELLS="twice")`: a crew with this in its environment; without small times by
    `real=True`."""
    crews: list[Crew] = []

    def make(*, real: bool = False, **extra: str) -> Crew:
        settings = {
            "DATABASE_URL": database_url(),
            "TOY_DATABASE": database_url(),
            "LOCKSTEP_BROKER_URL": broker.url,
            "LOCKSTEP_FAILPOINTS": str(tmp_path / "failpoints"),
            "LOCKSTEP_LOG_LEVEL": "INFO",
        }
        (tmp_path / "failpoints").mkdir(exist_ok=True)
        crews.append(Crew({**os.environ, **settings, **({} if real else SMALL), **extra}, tmp_path))
        return crews[-1]

    yield make
    for crew in crews:
        crew.end()


@pytest.fixture
def start_toys(world: None) -> Callable[[int], list[Operation]]:
    """`start_toys(60)`: that many operations of five steps."""
    user, cluster = make_cast().operator, make_cluster()
    numbers = itertools.count()

    def start(count: int) -> list[Operation]:
        return [
            make_operation(
                user,
                cluster=cluster,
                steps=STEPS_PER_OPERATION,
                targets=[f"set-{next(numbers)}"],
                abort_step="toy.end",
            )
            for _ in range(count)
        ]

    return start
