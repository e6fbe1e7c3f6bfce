"""The Celery app that workers and beat are started with.

    celery -A workers.app worker -c 2
    celery -A workers.app beat

A worker serves all queues of controlplane.queue in turn; `-Q` gives one of them workers of its own.

Exactly one beat; its schedule is static. Everything that decides anything is in the database, so two beats or
none change how soon something is looked at, never what happens.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from controlplane.fleet.connections import connect_cluster  # noqa: E402
from controlplane.operations.installation import OWN_RUNS  # noqa: E402
from workers.steps import RUNS, STEPS  # noqa: E402
from workers.tasks import make_app  # noqa: E402

app = make_app(steps=STEPS, runs={**OWN_RUNS, **RUNS}, connect=connect_cluster)
