"""The database's clock: the one that leases, expiry and audit rows are measured with (DESIGN 3)."""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """PostgreSQL's `clock_timestamp()`: the present, also deep inside a long transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    now: datetime = row[0]
    return now
