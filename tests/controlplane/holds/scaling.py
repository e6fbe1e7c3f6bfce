"""The two steps as tests take them, over an operation that has the set."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from controlplane.holds.scalers.steps import (
    PAUSE,
    give_back_scalers,
    pause_scalers,
)
from controlplane.operations.contract import Done, Hold, Outcome, Wait
from controlplane.operations.installation import this_installation
from controlplane.operations.models import Operation
from controlplane.operations.services import supersede_operation
from tests.conftest import Cast
from tests.controlplane.fleet.world import UID
from tests.controlplane.holds.scaler_world import (
    SET,
    ScalerWorld,
    context_of,
)
from tests.controlplane.operations.toy import ACTOR, new_operation

Json = dict[str, Any]


def memory() -> Json:
    return {**SET, "uid": UID, "installation": str(this_installation().pk)}


def store(operation: Operation, outcome: Outcome) -> None:
    """What the engine does with what a step remembers."""
    assert isinstance(outcome, Done | Wait | Hold), outcome
    operation.memory = {**operation.memory, **outcome.remember}
    operation.save()


def pauses(operation: Operation, world: ScalerWorld) -> Done:
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Done), said
    store(operation, said)
    operation.steps.filter(name=PAUSE).update(state="done")
    return said


def gives_back(operation: Operation, world: ScalerWorld) -> Done:
    said = give_back_scalers(context_of(operation, world))
    assert isinstance(said, Done), said
    store(operation, said)
    return said


def without_versions(body: Json) -> Json:
    found = deepcopy(body)
    found["metadata"].pop("resourceVersion")
    found["metadata"].pop("managedFields", None)
    return found


def disabled(body: Json) -> bool:
    behavior = body["spec"].get("behavior") or {}
    return [behavior.get(way, {}).get("selectPolicy") for way in ("scaleUp", "scaleDown")] == ["Disabled"] * 2


# --- there and back


def superseded(operation: Operation, users: Cast) -> Operation:
    """What a restore does to a running operation."""
    return supersede_operation(
        operation_id=operation.pk,
        new=new_operation(operation.cluster, [PAUSE, "toy.end"], [], memory=memory()),
        started_by=users.operator,
        actor=ACTOR,
    )
