"""The writes of this room, by name."""

from controlplane.operations.creation import NewOperation, Target, create_operation, supersede_operation
from controlplane.operations.engine import advance, wake
from controlplane.operations.verbs import (
    abort_operation,
    adopt_operation,
    promote_operation,
    resume_operation,
    retry_operation,
    stop_operation,
)

__all__ = [
    "NewOperation",
    "Target",
    "abort_operation",
    "adopt_operation",
    "advance",
    "create_operation",
    "promote_operation",
    "resume_operation",
    "retry_operation",
    "stop_operation",
    "supersede_operation",
    "wake",
]
