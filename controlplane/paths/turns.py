"""Turns at a pool: of all series that go through it one sends at a time, so that its rate holds for all together.

A turn is a time in the pool's row, not a lock: nobody keeps a transaction open while requests are on their way, and a
worker that is lost keeps the others waiting for no longer than its task may live.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from controlplane.audit.clock import database_now
from controlplane.paths.models import Pool

# A pool that has become free stays so for whoever found it taken first; seconds until others may have it all the same.
KEPT_FREE_S = 5.0


def take_turn(*, pool_id: int, series_id: int, lasts_s: float) -> datetime | None:
    """The right to send through a pool, at most until the time that comes back, `lasts_s` seconds from now; the time is
    also the turn's name. None where another series sends, or found the pool taken before this one did."""
    with transaction.atomic():
        pool = Pool.objects.select_for_update(no_key=True).only("turn_until", "turn_next").get(pk=pool_id)
        now = database_now()
        until, first = pool.turn_until, pool.turn_next
        if until is not None and now >= until + timedelta(seconds=KEPT_FREE_S):
            first = None  # it has not come: its series is over, or its worker is lost
        mine = None
        if (until is None or now >= until) and first in (None, series_id):
            first, mine = None, now + timedelta(seconds=lasts_s)
        pool.turn_next, pool.turn_until = first if mine else first or series_id, mine or until
        pool.save(update_fields=["turn_until", "turn_next"])
    return mine


def end_turn(*, pool_id: int, turn: datetime) -> None:
    """Let others send. A turn that has run out, and may be somebody else's by now, stays as it is."""
    Pool.objects.filter(pk=pool_id, turn_until=turn).update(turn_until=database_now())
