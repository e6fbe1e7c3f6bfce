"""Operations come into being: by a start, or by a restore that takes over from what is running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane import queue
from controlplane.access.models import User
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import Refused
from controlplane.fleet.models import Cluster
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.contract import PlannedStep
from controlplane.operations.models import Operation, OperationTarget
from controlplane.operations.outcomes import announce, end, publish_change
from controlplane.operations.steplist import put_last
from controlplane.operations.verbs import lock_for_verb
from policy.rollout.machine import Event

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What an operation takes: a set (kind `set`), later a router, objectives, a route, a scaler."""

    kind: str
    uid: str


@dataclass(frozen=True, slots=True)
class NewOperation:
    """Everything that a kind of change says about an operation. `steps` may be added to while it runs; the
    names of `abort_step`, `stop_step` and `adopt_step` are of steps that plan the way back, freeze the live
    counts, and take the world's state as ours (empty: the verb is refused)."""

    kind: str
    subject_id: str
    digest: str
    cluster: Cluster
    namespace: str
    title: str
    reason: str
    targets: Sequence[Target]
    steps: Sequence[PlannedStep]
    abort_step: str
    stop_step: str = ""
    adopt_step: str = ""
    memory: Json = field(default_factory=dict)


def create_operation(*, new: NewOperation, started_by: User, actor: Actor) -> Operation:
    """Create an operation, take its targets, ring. One transaction (or part of the caller's).

    Raises Refused `target-taken` with the other operation's id, title and state where a target is not free.
    """
    with brief_transaction():
        now = database_now()
        operation = _insert(new, started_by, now)
        _take_targets(operation, new.targets)
        _record_start(operation, new, actor, superseded=None)
    return operation


def supersede_operation(
    *, operation_id: int, new: NewOperation, started_by: User, actor: Actor, version: int | None = None
) -> Operation:
    """Create an operation in the place of a running one: it inherits the targets, and the memory under its
    own.

    The superseded one ends at once, without another step; a worker that is at it cannot commit any more, and
    what it has in flight is fenced off by the first claim of the new one. `new.targets` are taken in
    addition. Raises Refused where the old one is finished or an additional target is taken, StaleEdit for
    another version.
    """
    with brief_transaction():
        now = database_now()
        old = lock_for_verb(operation_id, version)
        inherited = [Target(one.kind, one.uid) for one in old.targets.filter(released=False)]
        end(old, Event.SUPERSEDE, now=now)
        announce(old)
        old.save()
        operation = _insert(new, started_by, now)
        operation.memory = {**old.memory, **new.memory}
        operation.save(update_fields=["memory"])
        _take_targets(operation, sorted({*inherited, *new.targets}))
        _record_start(operation, new, actor, superseded=old)
        record_event(
            actor=actor,
            action="operation.supersede",
            target_kind="operation",
            target_id=str(old.pk),
            after={"state": old.state, "by": operation.pk},
            reason=new.reason,
            fence=old.fence,
        )
    return operation


def _insert(new: NewOperation, started_by: User, now: datetime) -> Operation:
    operation = Operation.objects.create(
        kind=new.kind,
        subject_id=new.subject_id,
        digest=new.digest,
        cluster=new.cluster,
        namespace=new.namespace,
        title=new.title,
        reason=new.reason,
        abort_step=new.abort_step,
        stop_step=new.stop_step,
        adopt_step=new.adopt_step,
        memory=new.memory,
        started_by=started_by,
        started_at=now,
        changed_at=now,
        not_before=now,
    )
    put_last(operation, new.steps)
    return operation


def _take_targets(operation: Operation, targets: Sequence[Target]) -> None:
    """In sorted order, so that two operations over the same targets never wait for each other in a circle."""
    wanted = sorted(set(targets))
    OperationTarget.objects.bulk_create(
        [
            OperationTarget(operation=operation, kind=t.kind, uid=t.uid, cluster=operation.cluster)
            for t in wanted
        ],
        ignore_conflicts=True,
    )
    taken = {Target(one.kind, one.uid) for one in operation.targets.all()}
    for target in wanted:
        if target not in taken:
            raise _target_taken(operation.cluster, target)


def _target_taken(cluster: Cluster, target: Target) -> Refused:
    row = (
        OperationTarget.objects.filter(cluster=cluster, kind=target.kind, uid=target.uid, released=False)
        .select_related("operation")
        .first()
    )
    other = row.operation if row else None
    said = f"operation {other.pk} ({other.title}), which is {other.state}" if other else "another operation"
    return Refused(
        "target-taken",
        f"The {target.kind} is taken by {said}.",
        next_action="Wait for it to finish, or abort it.",
        kind=target.kind,
        uid=target.uid,
        operation=other.pk if other else None,
        title=other.title if other else "",
        state=other.state if other else "",
        reason=(other.finding.get("sentence") or other.waits_for.get("what") or "") if other else "",
    )


def _record_start(
    operation: Operation, new: NewOperation, actor: Actor, *, superseded: Operation | None
) -> None:
    record_event(
        actor=actor,
        action="operation.start",
        target_kind="operation",
        target_id=str(operation.pk),
        after={
            "kind": new.kind,
            "subject": new.subject_id,
            "digest": new.digest,
            "targets": [[one.kind, one.uid] for one in operation.targets.all()],
            "steps": [one.name for one in new.steps],
            "supersedes": superseded.pk if superseded else None,
        },
        reason=new.reason,
    )
    publish_change(operation)
    queue.ring_on_commit(queue.ADVANCE, operation.pk)
