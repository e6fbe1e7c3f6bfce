"""The product's tasks over the toy steps: `celery -A tests.chaos.engine.toy_worker worker`.

TOY_BELLS says what becomes of the bells that a commit rings: `once`, `twice`, or `never` (the sweep's still
ring).
"""

from __future__ import annotations

import os
from typing import Any

import django

django.setup()

from controlplane import queue  # noqa: E402
from tests.chaos.engine.world import STEPS, connect  # noqa: E402
from workers.tasks import make_app  # noqa: E402

app = make_app(steps=STEPS, runs={}, connect=connect)
_ring = queue.ring


def _twice(task: str, argument: Any) -> None:
    _ring(task, argument)
    _ring(task, argument)


if os.environ.get("TOY_BELLS") == "twice":
    queue.ring = _twice
elif os.environ.get("TOY_BELLS") == "never":
    queue.ring_on_commit = lambda task, argument: None
