"""What people do to a running operation. Each verb is one transaction: lock, change, audit row, event, bell.

A verb may come while a worker holds the lease. It raises the fence number, so that the worker's commit finds
its claim overtaken and writes nothing; the lease itself stays until the worker gives it back or it runs out,
so that two workers never act at once while both are well. The next claim then fences before it looks
(`settled` stays false).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from controlplane.access.etags import check_version
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused
from controlplane.operations import steplist
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.contract import PlannedStep
from controlplane.operations.fences import next_fence, raise_above
from controlplane.operations.models import FINISHED, Operation
from controlplane.operations.outcomes import announce, begin_abort, go_on, picture
from controlplane.operations.transitions import move
from policy.rollout.machine import Event

Json = dict[str, Any]
# Beyond this age what a person saw of the cluster is no ground to promote on (DESIGN 3).
VIEW_AGE_LIMIT = timedelta(seconds=30)
DATABASE_BEHIND = "database-behind"


def abort_operation(*, operation_id: int, reason: str, actor: Actor, version: int | None = None) -> Operation:
    """Turn the operation round. Always accepted while it is unfinished, and once is enough: a second abort
    changes nothing, except that it tries again where the way back is held.

    Where our database is behind the cluster, the way back needs numbers that count there, as after an adopt."""
    with brief_transaction():
        operation, before = _begin(operation_id, version)
        if operation.finding.get("code") == DATABASE_BEHIND:
            with suppress(Refused):  # a number that no claim can have drawn: the way back will say so again
                _raise_numbers(operation, operation.finding.get("facts") or {})
        if operation.phase != Operation.Phase.ABORTING:
            begin_abort(operation, by=actor.name, reason=reason, now=database_now())
        elif operation.state == Operation.State.HELD:
            move(operation, Event.RETRY)
            go_on(operation, now=database_now())
        else:
            _audit(operation, "abort", actor, before, reason)
            return operation
        return _complete(operation, "abort", actor, before, reason)


def promote_operation(
    *, operation_id: int, reason: str, actor: Actor, version: int | None = None
) -> Operation:
    """Record a person's word to go past the hold that the operation stands at; its step reads it at the next
    look.

    Raises Refused `not-at-a-hold` where it stands at none, `view-is-stale` where nobody can have seen the
    present state of the cluster (the watch is away)."""
    with brief_transaction():
        operation, before = _begin(operation_id, version)
        key = operation.waits_for.get("hold_key")
        step = steplist.current_step(operation)
        if not key or step is None or operation.state in FINISHED:
            raise Refused(
                "not-at-a-hold",
                f"There is no hold to promote past: the operation is {operation.state}.",
                next_action="Wait until it stands at a hold that takes a promote.",
                state=operation.state,
            )
        now = database_now()
        seen = operation.cluster.observed_at
        if seen is None or now - seen > VIEW_AGE_LIMIT:
            raise Refused(
                "view-is-stale",
                "The view of the cluster is not current, so nobody can have judged this hold.",
                next_action="Wait for the watch to catch up.",
                observed_at=seen.isoformat() if seen else None,
            )
        move(operation, Event.PROMOTE)
        operation.promoted = {
            "hold_key": key,
            "attempt": step.attempt,
            "by": actor.name,
            "at": now.isoformat(),
        }
        go_on(operation, now=now)
        return _complete(operation, "promote", actor, before, reason, after={"hold": key})


def resume_operation(
    *, operation_id: int, reason: str, actor: Actor, version: int | None = None
) -> Operation:
    """Go on where a finding stopped it, as the same attempt of the step."""
    return _go_on_from_hold(operation_id, Event.RESUME, reason, actor, version)


def retry_operation(*, operation_id: int, reason: str, actor: Actor, version: int | None = None) -> Operation:
    """Have the step done over as a new attempt: step approvals and promotes of the former attempt do not
    count."""
    return _go_on_from_hold(operation_id, Event.RETRY, reason, actor, version)


def stop_operation(*, operation_id: int, reason: str, actor: Actor, version: int | None = None) -> Operation:
    """Freeze at the live counts: the kind's stop step is next, and holds the operation when it is done.

    Raises Refused `no-such-verb` for a kind of change without one."""
    with brief_transaction():
        operation, before = _begin(operation_id, version)
        _put_in(operation, operation.stop_step, "stop")
        move(operation, Event.STOP)
        go_on(operation, now=database_now())
        return _complete(operation, "stop", actor, before, reason)


def adopt_operation(*, operation_id: int, reason: str, actor: Actor, version: int | None = None) -> Operation:
    """Take the world's state as ours, to end a finding.

    For `database-behind`: numbers above the one seen, so that this database's claims count again. For
    anything else the kind's adopt step is next. Raises Refused `nothing-to-adopt` unless the operation is
    held, `no-such-verb` for a kind without such a step."""
    with brief_transaction():
        operation, before = _begin(operation_id, version)
        if operation.state != Operation.State.HELD:
            raise Refused("nothing-to-adopt", f"The operation is {operation.state}, not held by a finding.")
        finding = operation.finding
        if finding.get("code") == DATABASE_BEHIND:
            _raise_numbers(operation, finding.get("facts") or {})
        else:
            _put_in(operation, operation.adopt_step, "adopt")
        move(operation, Event.ADOPT)
        go_on(operation, now=database_now())
        return _complete(operation, "adopt", actor, before, reason, after={"adopted": finding})


def lock_for_verb(operation_id: int, version: int | None) -> Operation:
    """The operation under a row lock, with a fresh fence number that overtakes any claim. `version` is what
    the caller has seen; None does not look at it. Raises NotFound, StaleEdit, or Refused
    `operation-finished`."""
    operation = (
        Operation.objects.select_for_update(no_key=True, of=("self",))
        .select_related("cluster")
        .filter(pk=operation_id)
        .first()
    )
    if operation is None:
        raise NotFound("not-found", f"There is no operation {operation_id}.")
    if version is not None:
        check_version(expected=version, actual=operation.version)
    if operation.state in FINISHED:
        raise Refused(
            "operation-finished",
            f"The operation has ended: {operation.state}.",
            next_action="Start another one.",
            state=operation.state,
        )
    operation.fence = max(operation.fence + 1, next_fence(operation.cluster))
    return operation


def _begin(operation_id: int, version: int | None) -> tuple[Operation, Json]:
    operation = lock_for_verb(operation_id, version)
    return operation, picture(operation)


def _complete(
    operation: Operation, verb: str, actor: Actor, before: Json, reason: str, *, after: Json | None = None
) -> Operation:
    announce(operation)
    operation.save()
    _audit(operation, verb, actor, before, reason, after=after)
    return operation


def _audit(
    operation: Operation, verb: str, actor: Actor, before: Json, reason: str, *, after: Json | None = None
) -> None:
    record_event(
        actor=actor,
        action=f"operation.{verb}",
        target_kind="operation",
        target_id=str(operation.pk),
        before=before,
        after={**picture(operation), **(after or {})},
        reason=reason,
        fence=operation.fence,
    )


def _go_on_from_hold(
    operation_id: int, verb: Event, reason: str, actor: Actor, version: int | None
) -> Operation:
    with brief_transaction():
        operation, before = _begin(operation_id, version)
        move(operation, verb)
        step = steplist.current_step(operation)
        if verb is Event.RETRY and step is not None:
            step.attempt += 1
            step.first_claimed_at = None
            step.save(update_fields=["attempt", "first_claimed_at"])
            operation.promoted = {}
        go_on(operation, now=database_now())
        return _complete(operation, verb, actor, before, reason)


def _put_in(operation: Operation, name: str, verb: str) -> None:
    if not name:
        raise Refused("no-such-verb", f"This kind of operation ({operation.kind}) knows no {verb}.")
    current = steplist.current_step(operation)
    if current is None or current.name != name:  # asked twice: once is enough
        steplist.put_before_current(operation, PlannedStep(name))


def _raise_numbers(operation: Operation, facts: Json) -> None:
    cluster = operation.cluster
    seen = int(facts.get("lease_transitions") or 0)
    if seen > cluster.lease_transitions:
        cluster.lease_transitions = seen
        cluster.save(update_fields=["lease_transitions"])
    if number := int(facts.get("seen") or 0):
        raise_above(number, lease_transitions=cluster.lease_transitions)
    operation.fence = max(operation.fence + 1, next_fence(cluster))
