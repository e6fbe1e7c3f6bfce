"""The one place where an operation changes state: the table of policy.rollout.machine, applied to the row."""

from __future__ import annotations

from controlplane.errors import refused_by
from controlplane.operations.models import Operation
from policy.rollout.machine import Event, transition
from policy.rollout.refusal import Refusal

# What a last step may say, as an event of the table.
ENDINGS = {
    "succeeded": Event.ALL_STEPS_DONE,
    "aborted": Event.ABORT_ENDED,
    "rolled-back": Event.ROLLED_BACK,
    "failed": Event.ABORT_FAILED,
}


def move(operation: Operation, event: Event) -> None:
    """Set the state and phase that `event` leads to. Raises Refused with the table's reason where it leads
    nowhere."""
    verdict = transition(operation.state, operation.phase, event)
    if isinstance(verdict, Refusal):
        raise refused_by(verdict, state=operation.state, phase=operation.phase)
    operation.state, operation.phase = verdict
