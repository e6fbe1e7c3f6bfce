"""The database's clock, and transactions that a paused process cannot keep open.

Leases, not_before and expiry are compared on PostgreSQL's `clock_timestamp()` alone: the clocks of workers
may differ, and `now()` stands still within a transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.conf import settings
from django.db import connection, models, transaction

from controlplane.audit.clock import database_now

__all__ = ["Clock", "brief_transaction", "database_now"]


class Clock(models.Func):
    """`clock_timestamp()` in a query."""

    function = "clock_timestamp"
    arity = 0
    output_field = models.DateTimeField()


@contextlib.contextmanager
def brief_transaction() -> Iterator[None]:
    """A transaction of milliseconds, or part of the caller's.

    A process that is paused inside would keep its row locks, and with them everybody else, for as long as it
    is paused: the server ends a session that idles in this transaction for a quarter of a lease.
    """
    idle = max(250, int(settings.LOCKSTEP_LEASE * 250))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
                " set_config('lock_timeout', %s, true)",
                [f"{idle}ms", f"{2 * idle}ms"],
            )
        yield
