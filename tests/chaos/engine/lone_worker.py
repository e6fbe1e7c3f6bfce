"""One `advance` in a process of its own, without Celery's hard limit: it can sleep as long as a test likes.

    python -m tests.chaos.engine.lone_worker OPERATION

Prints what came of it.
"""

from __future__ import annotations

import sys

import django

django.setup()

from controlplane.operations.services import advance  # noqa: E402
from tests.chaos.engine.world import STEPS, connect  # noqa: E402

print(advance(operation_id=int(sys.argv[1]), steps=STEPS, connect=connect, owner="lone"), flush=True)
