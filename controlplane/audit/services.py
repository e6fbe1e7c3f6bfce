"""Writing the record: one row per intent, in the transaction that carries the intent out."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from controlplane.audit.actor import Actor
from controlplane.audit.chain import seal_events, verify_chain
from controlplane.audit.clock import database_now
from controlplane.audit.models import AuditEvent, AuditPending
from controlplane.audit.redaction import presentable, text

__all__ = ["record_event", "record_refusal", "seal_events", "verify_chain"]


def record_event(
    *,
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: object,
    outcome: str = AuditEvent.Outcome.DONE,
    code: str = "",
    before: Any = None,
    after: Any = None,
    reason: str = "",
    fence: int | None = None,
) -> AuditEvent:
    """Add one row in the caller's transaction: if the write is rolled back, so is its record.

    `action` is noun.verb (`vote.cast`), `before` and `after` are JSON-like documents of what changed; secrets
    in them are redacted here. Raises RuntimeError outside a transaction.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("record_event belongs into the transaction of the write that it records.")
    now = database_now()
    shown_before, shown_after = presentable(before, after)
    event = AuditEvent.objects.create(
        at=now,
        actor=text(actor.name)[:200],
        actor_kind=actor.kind,
        on_behalf_of=text(actor.on_behalf_of)[:200],
        action=action[:80],
        outcome=outcome,
        code=code[:80],
        target_kind=target_kind[:40],
        target_id=text(str(target_id))[:120],
        before=shown_before,
        after=shown_after,
        reason=text(reason),
        request_id=actor.request_id[:80],
        source_ip=actor.source_ip,
        fence=fence,
    )
    AuditPending.objects.create(event=event, at=now)
    return event


def record_refusal(
    *,
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: object,
    code: str,
    after: Any = None,
    reason: str = "",
    fence: int | None = None,
) -> AuditEvent:
    """Add a refusal in a transaction of its own: what was refused has been rolled back, its record stays."""
    with transaction.atomic():
        return record_event(
            actor=actor,
            action=action,
            target_kind=target_kind,
            target_id=target_id,
            outcome=AuditEvent.Outcome.REFUSED,
            code=code,
            after=after,
            reason=reason,
            fence=fence,
        )
