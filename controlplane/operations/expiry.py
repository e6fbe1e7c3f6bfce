"""Operations that go back by themselves when their time is over, also while a finding holds them.

A step that stands at a hold remembers `expires` = {at, reason} and forgets it ({}) when the hold is passed. It
looks at the clock itself as long as it is asked; what nobody looks at any more, because a finding stopped it
or its tries fail, is sent back from here.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from controlplane.audit.actor import worker
from controlplane.audit.services import record_event
from controlplane.operations.clock import Clock, database_now
from controlplane.operations.models import Operation
from controlplane.operations.outcomes import announce, begin_abort, picture


def abort_expired() -> list[int]:
    """Begin the way back of every forward operation whose `expires` has passed and which nobody works on;
    their ids. One transaction each, so that one that is locked is left for the next sweep."""
    now = database_now()
    forward = Operation.objects.unfinished().filter(
        phase=Operation.Phase.FORWARD, memory__expires__at__isnull=False
    )
    due = [
        pk for pk, at in forward.values_list("pk", "memory__expires__at") if datetime.fromisoformat(at) <= now
    ]
    return [pk for pk in due if _abort(pk)]


def _abort(operation_id: int) -> bool:
    free = Q(lease_until=None) | Q(lease_until__lte=Clock())
    with transaction.atomic():
        operation = (
            Operation.objects.unfinished()
            .select_for_update(no_key=True, skip_locked=True)
            .filter(free, pk=operation_id, phase=Operation.Phase.FORWARD)
            .first()
        )
        expires = operation.memory.get("expires") if operation else None
        now = database_now()
        if operation is None or not expires or datetime.fromisoformat(expires["at"]) > now:
            return False
        before = picture(operation)
        begin_abort(operation, by="", reason=expires["reason"], now=now)
        announce(operation)
        operation.save()
        record_event(
            actor=worker("sweep"),
            action="operation.expire",
            target_kind="operation",
            target_id=str(operation.pk),
            before=before,
            after=picture(operation),
            reason=expires["reason"],
        )
    return True
