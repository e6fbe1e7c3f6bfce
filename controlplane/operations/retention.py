"""What ended long ago and nobody refers to is let go, a page at a time: runs, and the bulk of probe series."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings

from controlplane.audit.actor import worker
from controlplane.audit.services import record_event
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.models import Operation, Run
from controlplane.paths.retention import prune_series, unreferred

PAGE = 100  # rows in one transaction
BUDGET_S = 3.0  # of one round, for each kind; what is left is for the next one


def prune() -> int:
    """One round over what ended longer ago than LOCKSTEP_PRUNE_AFTER; how many rows were let go of. Two rounds at the
    same time share the work; one that is lost has done whole pages."""
    before = database_now() - timedelta(seconds=settings.LOCKSTEP_PRUNE_AFTER)
    unfinished = [str(pk) for pk in Operation.objects.unfinished().values_list("pk", flat=True)]
    return _rounds(partial(prune_series, before=before, unfinished=unfinished, limit=PAGE)) + _rounds(
        partial(prune_runs, before=before, limit=PAGE)
    )


def prune_runs(*, before: datetime, limit: int) -> int:
    """Delete at most `limit` runs that ended before a time and that nothing refers to, oldest first; how many."""
    with brief_transaction():
        due = unreferred(Run.objects.filter(done_at__lt=before).exclude(state=Run.State.WAITING))
        page = due.order_by("done_at").select_for_update(skip_locked=True, of=("self",))
        keys = list(page.values_list("pk", flat=True)[:limit])
        if keys:
            Run.objects.filter(pk__in=keys).delete()
            record_event(
                actor=worker("retention"),
                action="run.prune",
                target_kind="run",
                target_id=f"{min(keys)}-{max(keys)}",
                after={"deleted": sorted(keys), "ended_before": before.isoformat()},
            )
    return len(keys)


def _rounds(page: Callable[[], int]) -> int:
    done, ends = 0, time.monotonic() + BUDGET_S
    while True:
        count = page()
        done += count
        if count < PAGE or time.monotonic() >= ends:
            return done
