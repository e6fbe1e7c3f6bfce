"""A worker killed or paused at any point of a step does no harm, and somebody else goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.operations.models import Operation
from tests.chaos.engine.processes import Crew, wait_for
from tests.chaos.engine.verdict import assert_exactly_once, finished

pytestmark = pytest.mark.chaos
Start = Callable[..., list[Operation]]
POINTS = [
    "before-call.toy.write create",
    "after-call.toy.write create",
    "before-commit.toy.write",
    "before-commit.toy.look",
]


def arm(folder: Path, point: str, action: str) -> None:
    """Lay out one failpoint; a second word of the point is the verb."""
    name, _, verb = point.partition(" ")
    (folder / "failpoints" / name).write_text(f"{action} {verb}".strip())


def taken(folder: Path) -> bool:
    """Whether every failpoint laid out was come to."""
    return all(".taken." in path.name for path in (folder / "failpoints").iterdir())


@pytest.fixture
def crew(make_crew: Callable[..., Crew]) -> Iterator[Crew]:
    one = make_crew()
    one.add_worker(children=1)
    one.add_worker(children=1)
    one.start_beat()
    one.wait_until_up()
    yield one


def stopped(crew: Crew) -> list[int]:
    """Which workers are paused."""
    return [number for number, worker in enumerate(crew.workers) if worker.is_stopped()]


def test_killed_at_any_point(crew: Crew, start_toys: Start, tmp_path: Path) -> None:
    for point in POINTS:
        arm(tmp_path, point, "kill")
    operations = start_toys(4)
    wait_for(lambda: finished(operations), seconds=60, what="all operations end")
    assert taken(tmp_path)
    assert_exactly_once(operations)


@pytest.mark.parametrize("point", POINTS)
def test_paused_past_the_lease(crew: Crew, start_toys: Start, tmp_path: Path, point: str) -> None:
    """One worker is paused, the other takes over and finishes; then the first wakes up."""
    arm(tmp_path, point, "stop")
    operations = start_toys(3)
    wait_for(lambda: stopped(crew), seconds=30, what="a worker is paused")
    sleeper = crew.workers[stopped(crew)[0]]
    wait_for(lambda: finished(operations), seconds=60, what="the other worker finishes everything")
    sleeper.signal(signal.SIGCONT)
    wait_for(lambda: not sleeper.is_stopped(), seconds=10, what="the sleeper is awake")
    other = next(worker for worker in crew.workers if worker is not sleeper)
    other.kill()
    more = start_toys(1)
    wait_for(lambda: finished(more), seconds=60, what="the one that slept works again")
    assert_exactly_once([*operations, *more])
