"""The one place where an operation changes state: the table of policy.rollout.machine, applied to the row."""

from __future__ import annotations

from controlplane.errors import Refused
from controlplane.operations.models import FINISHED, Operation

_LIVE = ("working", "waiting")
_OPEN = (*_LIVE, "held")
# event → (states it may happen in, phases it may happen in, state after; None: keeps its state)
_TABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...], str | None]] = {
    "work": (_LIVE, ("forward", "aborting"), "working"),
    "wait": (_LIVE, ("forward", "aborting"), "waiting"),
    "hold": (_LIVE, ("forward", "aborting"), "held"),
    "promote": (("waiting",), ("forward",), "working"),
    "resume": (("held",), ("forward", "aborting"), "working"),
    "retry": (("held",), ("forward", "aborting"), "working"),
    "adopt": (("held",), ("forward", "aborting"), "working"),
    "stop": (_OPEN, ("forward", "aborting"), "working"),
    "abort": (_OPEN, ("forward", "aborting"), "working"),
    "supersede": (_OPEN, ("forward", "aborting"), "superseded"),
    "succeeded": (_LIVE, ("forward",), "succeeded"),
    "aborted": (_LIVE, ("aborting",), "aborted"),
    "rolled-back": (_LIVE, ("aborting",), "rolled-back"),
    "failed": (_LIVE, ("aborting",), "failed"),
}


def move(operation: Operation, event: str) -> None:
    """Set the state (and phase) that `event` leads to. Raises Refused `not-in-this-state` where it leads
    nowhere."""
    states, phases, after = _TABLE[event]
    if operation.state not in states or operation.phase not in phases:
        raise Refused(
            "not-in-this-state",
            f"{event} is not possible: the operation is {operation.state}"
            + (", on its way back" if operation.phase == Operation.Phase.ABORTING else "")
            + ".",
            next_action="Read the operation again." if operation.state in FINISHED else "",
            state=operation.state,
            phase=operation.phase,
        )
    operation.state = after or operation.state
    if event == "abort":
        operation.phase = Operation.Phase.ABORTING
