"""To fence a set: raise a number on its parameter, then on the set, before anything is looked at, released or written.

After that, a write of an earlier claim fails: the guard policy refuses its number on the parameter, and the set's
resourceVersion that it read is gone.
"""

from __future__ import annotations

from collections.abc import Callable
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
from controlplane.holds.writer import SetWriter
from controlplane.kube.errors import AlreadyExists, ObjectMissing
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS
from controlplane.operations.contract import Hold

Json = dict[str, Any]
LONGEST_NUMBER = 19  # digits of a 64-bit number


def fence_set(writer: SetWriter, *, may_touch: Callable[[Json], bool]) -> Hold | None:
    """Raise the writer's number in the cluster; KubeError as usual. The caller has made sure that the cluster is ours.

    `may_touch` is asked with the parameter: a touch has the controller look, and where the hold is not the one that
    was written, nothing would stop it now. A set that is gone, or another one, is left to the step to say.
    """
    try:
        live = read_set(writer.kube, writer.namespace, writer.name)
    except ObjectMissing:
        live = None
    parameter = raise_on_parameter(writer)
    if isinstance(parameter, Hold):
        return parameter
    if live is None or live["metadata"]["uid"] != writer.uid:
        return None
    written = live["metadata"].get("annotations", {}).get(FENCE_ANNOTATION, "0")
    # Anybody may write there; what is no number is written over.
    seen = int(written) if written.isdecimal() and len(written) <= LONGEST_NUMBER else 0
    if seen > writer.fence:
        return behind(writer.fence, seen)
    if may_touch(parameter):
        touch(writer, live)
    return None


def raise_on_parameter(writer: SetWriter) -> Hold | Json:
    """The parameter under the writer's number (made as released where there was none), or why that cannot be."""
    parameter = read_parameter(writer.kube, writer.namespace, writer.name)
    if parameter is None:
        body = released_parameter(
            namespace=writer.namespace, name=writer.name, uid=writer.uid, fence=writer.fence
        )
        try:
            return writer.kube.create(CONFIG_MAPS, body, LOCKSTEP_NAMESPACE)
        except AlreadyExists:
            named = parameter_name(writer.namespace, writer.name)
            parameter = writer.kube.get(CONFIG_MAPS, named, LOCKSTEP_NAMESPACE)
    try:
        standing = fence_of(parameter)
    except ValueError:
        return _unreadable(parameter)
    if standing > writer.fence:
        return behind(writer.fence, standing)
    return writer.kube.replace(CONFIG_MAPS, with_fence(parameter, writer.fence))


def touch(writer: SetWriter, live: Json, *, row: int | None = None) -> Json:
    """Write our number (and the row now allowed) on the set, which also makes its controller look again.

    Conflict when the set has moved on since `live` was read.
    """
    metadata = live["metadata"]
    annotations = {FENCE_ANNOTATION: str(writer.fence)}
    if row is not None:
        annotations[ROW_ANNOTATION] = str(row)
    return writer.kube.patch(
        DISAGGREGATED_SETS,
        metadata["name"],
        metadata["namespace"],
        {"metadata": {"uid": metadata["uid"], "annotations": annotations}},
        resource_version=metadata["resourceVersion"],
    )


def behind(fence: int, seen: int) -> Hold:
    """A higher number stands. Either our claim is over (the engine throws the outcome away) or our database is old."""
    return Hold(
        code="database-behind",
        sentence=f"The cluster carries fence number {seen}, above ours ({fence}): our database is behind it.",
        next_action="If this database was restored from a backup: adopt (raises our numbers above it) or abort.",
        facts={"seen": seen, "ours": fence},
    )


def _unreadable(parameter: Json) -> Hold:
    """Only break-glass can have written this, and only break-glass can mend it: the guard compares numbers."""
    name = parameter["metadata"]["name"]
    return Hold(
        code="hold-breached",
        sentence=f"The fence number on {LOCKSTEP_NAMESPACE}/{name} cannot be read.",
        next_action="Find out who wrote it, have break-glass delete the ConfigMap, then retry: it is put back.",
        facts={"fence": str(parameter["data"]["fence"])},
    )
