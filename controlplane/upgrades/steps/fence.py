"""How an upgrade fences its set (holds/fencing), and its touch."""

from __future__ import annotations

from typing import Any

from controlplane.holds import fencing
from controlplane.holds.claimant import writer_of
from controlplane.operations.contract import Hold, StepContext
from controlplane.operations.installation import check_installation
from controlplane.operations.models import Step
from controlplane.upgrades.steps.memory import memory_of, wrong_parameter
from policy.rollout.box import Box

Json = dict[str, Any]


def fence_parameter(context: StepContext) -> Hold | None:
    """Raise this claim's number on the parameter alone: for steps that write nothing else, at a time when nothing may
    stop the controller yet. A touch of the set would have it look."""
    if finding := check_installation(context.kube, context.cluster):
        return finding
    raised = fencing.raise_on_parameter(writer_of(context))
    return raised if isinstance(raised, Hold) else None


def fence_world(context: StepContext) -> Hold | None:
    """Raise this claim's number in the cluster. A Hold where the world is not ours to write; KubeError as usual."""
    if finding := check_installation(context.kube, context.cluster):
        return finding
    holding = memory_of(context).data.get("holding")
    return fencing.fence_set(
        writer_of(context),
        may_touch=lambda parameter: (
            not (holding and wrong_parameter(context, parameter, _own_boxes(context)))
        ),
    )


def _own_boxes(context: StepContext) -> list[Box]:
    """What we may have written: the remembered box, and the next one where the worker was lost after writing it."""
    memory, step = memory_of(context), Step.objects.get(pk=context.step_id)
    return [memory.box(), *([memory.next_box(**step.args)] if step.name == "upgrades.raise_row" else [])]


def touch(context: StepContext, live: Json, *, row: int | None = None) -> Json:
    """Write our number (and the row now allowed) on the set, which also makes its controller look again.

    Conflict when the set has moved on since `live` was read.
    """
    return fencing.touch(writer_of(context), live, row=row)
