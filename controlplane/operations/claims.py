"""Claims: who may act on an operation, until when, under which fence number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection

from controlplane.errors import Refused
from controlplane.operations.clock import Clock, brief_transaction
from controlplane.operations.fences import PER_TRANSITION
from controlplane.operations.models import Operation, Step

# One statement decides. The row is locked in its newest version before the conditions are judged, so of two
# claims one wins. A lease that ran out means that a claim ended without a word (its worker was killed, paused
# or ran into the hard limit): it counts as a failed try, or a step that kills its worker would be tried for
# ever.
_CLAIM = """
WITH due AS (
    SELECT o.id, o.settled, o.lease_until IS NOT NULL AS lost, c.lease_transitions
    FROM operations_operation o JOIN fleet_cluster c ON c.id = o.cluster_id
    WHERE o.id = %(id)s AND o.state IN ('working', 'waiting') AND o.not_before <= clock_timestamp()
        AND (o.lease_until IS NULL OR o.lease_until <= clock_timestamp())
    FOR NO KEY UPDATE OF o
)
UPDATE operations_operation o
SET fence = greatest(o.fence + 1, due.lease_transitions * %(per_transition)s::bigint +
nextval('lockstep_fence')), lease_owner = %(owner)s, lease_until = clock_timestamp() + make_interval(secs =>
%(lease)s), settled = false, woken = false, attempts = o.attempts + due.lost::int FROM due WHERE o.id = due.id
RETURNING o.fence, due.settled, o.lease_until, clock_timestamp()
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's right to do one step. `was_settled`: every call of earlier claims was answered or fenced
    off; `step` is None where nothing is left to do."""

    operation: Operation
    step: Step | None
    fence: int
    was_settled: bool
    owner: str
    lease_until: datetime
    now: datetime


def claim_operation(*, operation_id: int, owner: str) -> Claim | None:
    """Take the operation if it is unfinished, due and free, under a new fence number; None where it is
    not."""
    with brief_transaction():
        with connection.cursor() as cursor:
            cursor.execute(
                _CLAIM,
                {
                    "id": operation_id,
                    "owner": owner,
                    "lease": settings.LOCKSTEP_LEASE,
                    "per_transition": PER_TRANSITION,
                },
            )
            row = cursor.fetchone()
        if row is None:
            return None
        fence, was_settled, lease_until, now = row
        operation = Operation.objects.select_related("cluster").get(pk=operation_id)
        step = operation.steps.filter(state=Step.State.PENDING).order_by("index").first()
        if step is not None and step.first_claimed_at is None:
            step.first_claimed_at = now
            step.save(update_fields=["first_claimed_at"])
    return Claim(operation, step, fence, was_settled, owner, lease_until, now)


def still_stands(claim: Claim) -> bool:
    """Whether the claim is the newest one and its lease has time left."""
    return Operation.objects.filter(
        pk=claim.operation.pk, fence=claim.fence, lease_until=claim.lease_until, lease_until__gt=Clock()
    ).exists()


def lock_claim(*, operation_id: int, fence: int) -> None:
    """Within a transaction: make a step's own rows part of its claim. Verbs and other claims wait for its end.

    Raises Refused `overtaken` where the number is not the newest: a worker that was paused must not write down
    what no longer holds."""
    mine = Operation.objects.select_for_update(no_key=True).filter(pk=operation_id, fence=fence)
    if not mine.exists():
        raise Refused("overtaken", "A later claim or a person's verb took this operation over.")


def give_back(claim: Claim) -> bool:
    """Free the lease of a claim that a person's verb has overruled, so that nobody waits for it to run out.

    It stays unsettled. False where somebody else holds the operation by now."""
    return bool(
        Operation.objects.filter(
            pk=claim.operation.pk, lease_owner=claim.owner, lease_until=claim.lease_until
        ).update(lease_owner="", lease_until=None)
    )
