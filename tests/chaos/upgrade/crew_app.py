"""The product's own workers with one thing changed: `celery -A tests.chaos.upgrade.crew_app worker`.

CHAOS_PATIENT=1 takes the hard limit of tasks away, so that a worker that was paused goes on where it was when it
wakes up, instead of being ended by its parent. CHAOS_BELLS says what becomes of the bells of this process: `twice`
(every one), `never` (those that a commit rings; the sweep's still ring).
"""

from __future__ import annotations

import os
from typing import Any

from controlplane import queue
from workers.app import app

__all__ = ["app"]

if os.environ.get("CHAOS_PATIENT") == "1":
    app.conf.task_time_limit = None

_ring = queue.ring


def _twice(task: str, argument: Any) -> None:
    _ring(task, argument)
    _ring(task, argument)


if os.environ.get("CHAOS_BELLS") == "twice":
    queue.ring = _twice
elif os.environ.get("CHAOS_BELLS") == "never":
    queue.ring_on_commit = lambda task, argument: None
