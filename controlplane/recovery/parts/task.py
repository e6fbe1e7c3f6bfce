"""What a part of a restore is handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.holds.live import LiveSet, last_writer, roles_digest
from controlplane.holds.parameter import box_from_json, is_holding
from controlplane.holds.writer import SetWriter
from controlplane.kube.client import Kube
from controlplane.operations.contract import Hold
from controlplane.recovery.reading import Seen, read_seen

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """The combination's document, who writes, what is remembered, and the clock. `since` is when this action was
    first begun; `step` tells one action from another in what is remembered; `guards` are the admission policies and
    bindings as shipped, because a rescue has no settings that say where they are."""

    writer: SetWriter
    document: Json
    memory: Mapping[str, Any]
    now: datetime
    since: datetime
    step: str
    stable_for: float
    stuck_after: float
    guards: Sequence[Json]

    @property
    def kube(self) -> Kube:
        """The cluster."""
        return self.writer.kube

    @property
    def namespace(self) -> str:
        """Namespace of the set, its pools and its ConfigMaps."""
        return self.writer.namespace

    @property
    def workload(self) -> Json:
        """The recorded workload."""
        found: Json = self.document["workload"]
        return found

    @property
    def good(self) -> str:
        """Label of the recorded revision."""
        return str(self.workload["revision"])

    @property
    def waited(self) -> float:
        """Seconds since this action was first begun."""
        return (self.now - self.since).total_seconds()

    def see(self) -> Seen:
        """Everything, read live."""
        return read_seen(self.kube, self.namespace, self.writer.name, recorded=self.document)


def goal_of(document: Json, live: LiveSet) -> dict[str, int]:
    """Recorded groups per role; a role that is sized from outside keeps the number of its scaler."""
    return {role["name"]: live.target(role) for role in document["workload"]["roles"]}


def foreign_write(task: Task, live: LiveSet) -> Hold | None:
    """A finding where the roles are not the ones that this restore wrote. Told once; after a retry they are written
    again (`written_over`)."""
    if roles_digest(live.roles) == task.memory.get("expected"):
        return None
    return Hold(
        code="foreign-write",
        sentence=f"Somebody else wrote spec.roles during the restore: last writer {last_writer(live.body)}.",
        next_action="Stop that writer, then retry: the recorded roles are written once more; or abort.",
        remember={"told_written_over": task.step},
    )


def may_touch(writer: SetWriter, memory: Mapping[str, Any], parameter: Json) -> bool:
    """Whether the controller may be made to look now: not while a hold should stand that is not there as written.

    Before the first hold of its own a restore has the one of the operation that it took over from."""
    if not memory.get("holding"):
        return True
    box = box_from_json(memory.get("box"))
    if box is not None:
        return not writer.wrong_parameter(parameter, [box])
    return is_holding(parameter) and (parameter.get("data") or {}).get("operation") == memory.get("inherits")
