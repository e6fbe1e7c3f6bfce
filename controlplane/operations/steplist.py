"""An operation's list of steps: what is next, what is put in, what has become moot."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import F, Max

from controlplane.operations.contract import PlannedStep
from controlplane.operations.models import Operation, Step


def current_step(operation: Operation) -> Step | None:
    """The pending step with the lowest index."""
    return operation.steps.filter(state=Step.State.PENDING).order_by("index").first()


def insert_steps(operation: Operation, planned: Sequence[PlannedStep], *, at: int) -> None:
    """Put steps in from index `at` on; what stood there and later moves back."""
    if not planned:
        return
    operation.steps.filter(index__gte=at).update(index=F("index") + len(planned))
    Step.objects.bulk_create(
        [
            Step(operation=operation, index=at + offset, name=step.name, args=step.args)
            for offset, step in enumerate(planned)
        ]
    )


def put_before_current(operation: Operation, planned: PlannedStep) -> None:
    """Put one step in front of the current one (at the end where none is left)."""
    step = current_step(operation)
    insert_steps(operation, [planned], at=step.index if step else _end(operation))


def put_last(operation: Operation, planned: Sequence[PlannedStep]) -> None:
    """Put steps behind everything else."""
    insert_steps(operation, planned, at=_end(operation))


def skip_pending(operation: Operation) -> None:
    """Mark every pending step as moot."""
    operation.steps.filter(state=Step.State.PENDING).update(state=Step.State.SKIPPED)


def _end(operation: Operation) -> int:
    last: int | None = operation.steps.aggregate(last=Max("index"))["last"]
    return 0 if last is None else last + 1
