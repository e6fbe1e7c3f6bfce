"""To fence: raise our number on the parameter, then on the set, before anything is looked at, released or written.

After that, a write of an earlier claim fails: the guard policy refuses its number on the parameter, and the set's
resourceVersion that it read is gone.
"""

from __future__ import annotations

from typing import Any

from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.kube.errors import AlreadyExists, ObjectMissing
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS
from controlplane.operations.contract import Hold, StepContext
from controlplane.operations.installation import check_installation
from controlplane.upgrades.live import (
    FENCE_ANNOTATION,
    ROW_ANNOTATION,
    parameter_name,
    read_parameter,
    read_set,
)
from controlplane.upgrades.parameter import fence_of, released_parameter, with_fence
from controlplane.upgrades.steps.memory import memory_of

Json = dict[str, Any]


def fence_world(context: StepContext) -> Hold | None:
    """Raise this claim's number in the cluster. A Hold where the world is not ours to write; KubeError as usual."""
    memory = memory_of(context)
    if finding := check_installation(context.kube, context.cluster):
        return finding
    try:
        live = read_set(context.kube, memory.namespace, memory.name)
    except ObjectMissing:
        live = None
    if finding := _raise_on_parameter(context):
        return finding
    if live is None:
        return None  # the step itself says that the set is gone
    seen = int(live["metadata"].get("annotations", {}).get(FENCE_ANNOTATION, "0"))
    if seen > context.fence:
        return behind(context, seen)
    touch(context, live)
    return None


def _raise_on_parameter(context: StepContext) -> Hold | None:
    memory = memory_of(context)
    parameter = read_parameter(context.kube, memory.namespace, memory.name)
    if parameter is None:
        body = released_parameter(
            namespace=memory.namespace, name=memory.name, uid=memory.uid, fence=context.fence
        )
        try:
            context.kube.create(CONFIG_MAPS, body, LOCKSTEP_NAMESPACE)
            return None
        except AlreadyExists:
            parameter = context.kube.get(
                CONFIG_MAPS, parameter_name(memory.namespace, memory.name), LOCKSTEP_NAMESPACE
            )
    if fence_of(parameter) > context.fence:
        return behind(context, fence_of(parameter))
    context.kube.replace(CONFIG_MAPS, with_fence(parameter, context.fence))
    return None


def behind(context: StepContext, seen: int) -> Hold | None:
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
