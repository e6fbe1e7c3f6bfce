"""To fence: raise our number on the parameter, then on the set, before anything is looked at, released or written.

After that, a write of an earlier claim fails: the guard policy refuses its number on the parameter, and the set's
resourceVersion that it read is gone.
"""

from __future__ import annotations

from typing import Any

from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.holds.live import (
    FENCE_ANNOTATION,
    ROW_ANNOTATION,
    parameter_name,
    read_parameter,
    read_set,
)
from controlplane.holds.parameter import fence_of, released_parameter, with_fence
from controlplane.kube.errors import AlreadyExists, ObjectMissing
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS
from controlplane.operations.contract import Hold, StepContext
from controlplane.operations.installation import check_installation
from controlplane.operations.models import Step
from controlplane.upgrades.steps.memory import memory_of, wrong_parameter
from policy.rollout.box import Box

Json = dict[str, Any]
LONGEST_NUMBER = 19  # digits of a 64-bit number


def fence_parameter(context: StepContext) -> Hold | None:
    """Raise this claim's number on the parameter alone: for steps that write nothing else, at a time when nothing may
    stop the controller yet. A touch of the set would have it look."""
    if finding := check_installation(context.kube, context.cluster):
        return finding
    raised = _raise_on_parameter(context)
    return raised if isinstance(raised, Hold) else None


def fence_world(context: StepContext) -> Hold | None:
    """Raise this claim's number in the cluster. A Hold where the world is not ours to write; KubeError as usual."""
    memory = memory_of(context)
    if finding := check_installation(context.kube, context.cluster):
        return finding
    try:
        live = read_set(context.kube, memory.namespace, memory.name)
    except ObjectMissing:
        live = None
    parameter = _raise_on_parameter(context)
    if isinstance(parameter, Hold):
        return parameter
    if live is None or live["metadata"]["uid"] != memory.uid:
        return None  # the step itself says that the set is gone, or another one
    written = live["metadata"].get("annotations", {}).get(FENCE_ANNOTATION, "0")
    # Anybody may write there; what is no number is written over.
    seen = int(written) if written.isdecimal() and len(written) <= LONGEST_NUMBER else 0
    if seen > context.fence:
        return behind(context, seen)
    if memory.data.get("holding") and wrong_parameter(context, parameter, _own_boxes(context)):
        return None  # a touch would have the controller look, and nothing would stop it now
    touch(context, live)
    return None


def _own_boxes(context: StepContext) -> list[Box]:
    """What we may have written: the remembered box, and the next one where the worker was lost after writing it."""
    memory, step = memory_of(context), Step.objects.get(pk=context.step_id)
    return [memory.box(), *([memory.next_box(**step.args)] if step.name == "upgrades.raise_row" else [])]


def _raise_on_parameter(context: StepContext) -> Hold | Json:
    memory = memory_of(context)
    parameter = read_parameter(context.kube, memory.namespace, memory.name)
    if parameter is None:
        body = released_parameter(
            namespace=memory.namespace, name=memory.name, uid=memory.uid, fence=context.fence
        )
        try:
            return context.kube.create(CONFIG_MAPS, body, LOCKSTEP_NAMESPACE)
        except AlreadyExists:
            parameter = context.kube.get(
                CONFIG_MAPS, parameter_name(memory.namespace, memory.name), LOCKSTEP_NAMESPACE
            )
    try:
        standing = fence_of(parameter)
    except ValueError:
        return _unreadable(parameter)
    if standing > context.fence:
        return behind(context, standing)
    return context.kube.replace(CONFIG_MAPS, with_fence(parameter, context.fence))


def _unreadable(parameter: Json) -> Hold:
    """Only break-glass can have written this, and only break-glass can mend it: the guard compares numbers."""
    name = parameter["metadata"]["name"]
    return Hold(
        code="hold-breached",
        sentence=f"The fence number on {LOCKSTEP_NAMESPACE}/{name} cannot be read.",
        next_action="Find out who wrote it, have break-glass delete the ConfigMap, then retry: it is put back.",
        facts={"fence": str(parameter["data"]["fence"])},
    )


def behind(context: StepContext, seen: int) -> Hold:
    """A higher number stands. Either our claim is over (the engine throws the outcome away) or our database is old."""
    return Hold(
        code="database-behind",
        sentence=f"The cluster carries fence number {seen}, above ours ({context.fence}): our database is behind it.",
        next_action="If this database was restored from a backup: adopt (raises our numbers above it) or abort.",
        facts={"seen": seen, "ours": context.fence},
    )


def touch(context: StepContext, live: Json, *, row: int | None = None) -> Json:
    """Write our number (and the row now allowed) on the set, which also makes its controller look again.

    Conflict when the set has moved on since `live` was read.
    """
    metadata = live["metadata"]
    annotations = {FENCE_ANNOTATION: str(context.fence)}
    if row is not None:
        annotations[ROW_ANNOTATION] = str(row)
    return context.kube.patch(
        DISAGGREGATED_SETS,
        metadata["name"],
        metadata["namespace"],
        {"metadata": {"uid": metadata["uid"], "annotations": annotations}},
        resource_version=metadata["resourceVersion"],
    )
