"""Audit events as tests need them, and the power of somebody who owns the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from controlplane.audit.actor import Actor
from controlplane.audit.models import AuditEvent
from controlplane.audit.services import record_event

OLGA = Actor(name="olga", kind="person", request_id="r-1", source_ip="10.0.0.1")


def write(number: int = 1, **changed: Any) -> list[AuditEvent]:
    """So many events of Olga, in one transaction."""
    given: dict[str, Any] = {"action": "plan.edit", "target_kind": "plan", "before": {"n": 1}}
    with transaction.atomic():
        return [
            record_event(actor=OLGA, target_id=index, after={"n": index}, **given | changed)
            for index in range(number)
        ]


@contextmanager
def as_database_owner() -> Iterator[None]:
    """Without the triggers: what an attacker with full rights could do."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("SET session_replication_role = origin")
