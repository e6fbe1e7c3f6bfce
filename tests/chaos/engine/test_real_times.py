"""One pass with the lease and the sweep that production runs with: resumed in less than 30 s."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.operations.models import Operation
from tests.chaos.engine.processes import Crew, Process, wait_for
from tests.chaos.engine.verdict import assert_exactly_once, finished

pytestmark = pytest.mark.chaos
RESUMED_WITHIN = 30.0


def test_resumed_within_30_seconds(
    make_crew: Callable[..., Crew], start_toys: Callable[[int], list[Operation]], tmp_path: Path
) -> None:
    """Two of three workers are lost within a step, one killed whole and one paused; the third goes on with
    both operations, and the paused one changes nothing when it wakes up."""
    crew = make_crew(real=True)
    for _ in range(3):
        crew.add_worker(children=1)
    crew.start_beat()
    crew.wait_until_up()
    for point in ("after-call.toy.write", "before-commit.toy.look"):
        (tmp_path / "failpoints" / point).write_text("stop")
    operations = start_toys(2)
    wait_for(lambda: len(lost(crew)) == 2, seconds=40, what="two workers are lost")
    killed, paused = lost(crew)
    killed.kill()
    since = time.monotonic()
    wait_for(lambda: finished(operations), seconds=RESUMED_WITHIN, what="both operations are resumed and end")
    print(f"resumed and ended {time.monotonic() - since:.1f} s after the loss")
    paused.signal(signal.SIGCONT)
    wait_for(lambda: not paused.is_stopped(), seconds=10, what="the paused one is awake")
    assert_exactly_once(operations)


def lost(crew: Crew) -> list[Process]:
    """The workers that are paused."""
    return [worker for worker in crew.workers if worker.is_stopped()]
