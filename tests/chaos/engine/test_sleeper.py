"""A worker that is paused past its lease and wakes up: its write is refused, its commit finds nothing to
change.

Here the sleeper has no parent that would end it for being late, so what it does after waking is certain.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.operations import services
from controlplane.operations.models import Operation, Step
from tests.chaos.engine.conftest import SMALL, database_url
from tests.chaos.engine.processes import Process, wait_for
from tests.chaos.engine.verdict import assert_exactly_once, refused_writes
from tests.chaos.engine.world import STEPS, connect
from tests.controlplane.operations.toy import ACTOR

pytestmark = pytest.mark.chaos
Start = Callable[..., list[Operation]]
LEASE = {"LOCKSTEP_CALL_TIMEOUT": "0.5", "LOCKSTEP_TASK_HARD_LIMIT": "1", "LOCKSTEP_LEASE": "1.5"}


@pytest.fixture
def sleeper(world: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Process]]:
    """`sleeper(operation, point)`: a worker that is paused at that point of its first step."""
    monkeypatch.setenv("TOY_DATABASE", database_url())
    monkeypatch.setattr("controlplane.queue.ring", lambda task, argument: None)
    (tmp_path / "failpoints").mkdir()
    begun: list[Process] = []

    def begin(operation: Operation, point: str) -> Process:
        name, _, verb = point.partition(" ")
        (tmp_path / "failpoints" / name).write_text(f"stop {verb}".strip())
        command = [sys.executable, "-m", "tests.chaos.engine.lone_worker", str(operation.pk)]
        env = {**os.environ, **SMALL, **LEASE, "DATABASE_URL": database_url()}
        env |= {"LOCKSTEP_FAILPOINTS": str(tmp_path / "failpoints")}
        begun.append(Process(command, env, tmp_path / "lone.log"))
        begun[-1].start()
        wait_for(begun[-1].is_stopped, seconds=30, what="the worker is paused")
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()


def carry_on(operation: Operation, *, steps: int = 99) -> None:
    """Another worker does the rest, or so many steps of it, as soon as the lease has run out."""

    def step() -> bool:
        services.advance(operation_id=operation.pk, steps=STEPS, connect=connect, owner="other")
        done = Step.objects.filter(operation=operation, state="done").count()
        return done >= steps or bool(Operation.objects.get(pk=operation.pk).finished_at)

    wait_for(step, seconds=30, what="the other worker does its steps")


def wake_up(sleeper: Process, log: Path) -> str:
    """Let it go on to its end; the last line it said."""
    sleeper.signal(signal.SIGCONT)
    assert sleeper.running is not None
    sleeper.running.wait(20)
    return log.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("point", "refused"),
    [
        ("before-call.toy.write create", 1),
        ("before-call.toy.write patch", 0),
        ("after-call.toy.write create", 0),
    ],
)
def test_its_write_is_refused(
    sleeper: Callable[..., Process], start_toys: Start, tmp_path: Path, point: str, refused: int
) -> None:
    [operation] = start_toys(1)
    asleep = sleeper(operation, point)
    carry_on(operation)
    assert wake_up(asleep, tmp_path / "lone.log") == "overtaken"
    assert refused_writes() == refused
    assert_exactly_once([operation])


def test_the_other_is_still_at_it(sleeper: Callable[..., Process], start_toys: Start, tmp_path: Path) -> None:
    """It wakes up while the operation is a step further: its outcome belongs to a claim that is over."""
    [operation] = start_toys(1)
    asleep = sleeper(operation, "after-call.toy.write create")
    carry_on(operation, steps=1)
    assert wake_up(asleep, tmp_path / "lone.log") == "overtaken"
    assert Step.objects.filter(operation=operation, state="done").count() == 1
    carry_on(operation)
    assert_exactly_once([operation])


def test_it_cannot_commit(sleeper: Callable[..., Process], start_toys: Start, tmp_path: Path) -> None:
    """Paused inside its transaction, with the row locked: the server ends the session, so nobody waits for
    it."""
    [operation] = start_toys(1)
    asleep = sleeper(operation, "before-commit.toy.write")
    carry_on(operation)
    wake_up(asleep, tmp_path / "lone.log")
    assert asleep.running is not None and asleep.running.returncode != 0, "its connection is gone"
    assert_exactly_once([operation])


def test_somebody_aborts_meanwhile(
    sleeper: Callable[..., Process], start_toys: Start, tmp_path: Path
) -> None:
    """The abort is accepted at once; the way back begins when the sleeper's lease has run out."""
    [operation] = start_toys(1)
    asleep = sleeper(operation, "before-call.toy.write create")
    aborted = services.abort_operation(operation_id=operation.pk, reason="enough", actor=ACTOR)
    assert aborted.phase == "aborting"
    carry_on(operation)
    assert wake_up(asleep, tmp_path / "lone.log") == "overtaken"
    assert Operation.objects.get(pk=operation.pk).state == "aborted"
    assert refused_writes() == 1
    assert not Step.objects.filter(operation=operation, name="toy.write", state="done").exists()
    assert_exactly_once([operation], outcome="aborted")
