"""The verdict over a whole wave: no problem anywhere, every order carried out, everything resumed in time."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

from tests.chaos.upgrade.history import History
from tests.chaos.upgrade.judge import RESUMED_WITHIN_S, Finding, chain_problems, resumed_after
from tests.chaos.upgrade.orders import STOP, left
from tests.chaos.upgrade.wave import ADOPT, Wave


def assert_nothing_is_wrong(wave: Wave, history: History, *, within_s: float = RESUMED_WITHIN_S) -> None:
    """Judge every set of the wave, and print what was done and how soon it was resumed."""
    history.catch_up()
    problems = chain_problems()  # of what the sealer has taken so far
    for script in wave.scripts:
        adopted = script.way == ADOPT
        problems += Finding(script.name, wave.namespace, history, script.operations, adopted).judge()
        for operation in script.operations:
            waiting = left(wave.folder, subject=operation.subject_id)
            problems += [f"{script.name}: nobody came to {one}" for one in waiting]
    times = _resumed(wave)
    problems += [f"{name} was resumed after {time} s" for name, time in times if not 0 <= time < within_s]
    _tell(wave, [time for _, time in times])
    assert not problems, "\n".join([*problems, wave.lockstep.story()])


def _resumed(wave: Wave) -> list[tuple[str, float]]:
    found = []
    for script in wave.scripts:
        for loss in script.losses:
            operation = next(o for o in script.operations if loss.subject == o.subject_id)
            time = resumed_after(operation, loss.at)
            found.append((f"{script.name} {loss.name}", -1.0 if time is None else time))
    return found


def _tell(wave: Wave, times: list[float]) -> None:
    losses = [loss for script in wave.scripts for loss in script.losses]
    summary = {
        "upgrades": sum(len(script.operations) for script in wave.scripts),
        "killed": sum(not loss.line.startswith(STOP) for loss in losses),
        "paused": sum(loss.line.startswith(STOP) for loss in losses),
        "resumed_median_s": round(statistics.median(times), 2) if times else None,
        "resumed_most_s": round(max(times), 2) if times else None,
    }
    print(json.dumps(summary))
    if kept := os.environ.get("LOCKSTEP_CHAOS_REPORT"):
        with Path(kept).open("a") as report:
            report.write(json.dumps(summary) + "\n")
