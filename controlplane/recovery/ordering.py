"""From the order of parts to steps: names and arguments only. The rescue program goes through the same list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.operations.contract import PlannedStep
from policy.recovery.order import Part, Way

Json = dict[str, Any]


def steps_of(parts: Sequence[Part]) -> list[tuple[int, PlannedStep]]:
    """Each step with the index of its part."""
    return [(index, step) for index, part in enumerate(parts) for step in _steps(part)]


def restore_steps(parts: Sequence[Part]) -> tuple[PlannedStep, ...]:
    """Everything that the check of a restore puts in: parts in their order, the hold let go, scalers given back."""
    writes_set = any(part.name == "workload" for part in parts)
    marked = _marked(steps_of(parts))
    early = [step for index, step in marked if parts[index].name != "scalers"]
    late = [step for index, step in marked if parts[index].name == "scalers"]
    return (
        *([PlannedStep("holds.pause_scalers")] if writes_set else []),
        *early,
        *([] if writes_set else [PlannedStep("recovery.release")]),
        PlannedStep("holds.give_back_scalers"),
        *late,
    )


def proof_of(way: Way) -> tuple[PlannedStep, ...]:
    """The proof of a hold on what serves. Going back to what still stands needs none, as an abort needs none: where
    nothing holds it, the controller goes the same way."""
    return (PlannedStep("recovery.prove_hold"),) if way == "anew" else ()


def ending_steps() -> tuple[PlannedStep, ...]:
    """What comes after the parts."""
    return (
        PlannedStep("recovery.verify"),
        PlannedStep("recovery.count"),
        PlannedStep("recovery.record"),
        PlannedStep("recovery.finish", {"outcome": "succeeded"}),
    )


def _marked(steps: Sequence[tuple[int, PlannedStep]]) -> list[tuple[int, PlannedStep]]:
    """The last step of each part says so: when it is done, the part is."""
    found = []
    for position, (index, step) in enumerate(steps):
        last = position + 1 == len(steps) or steps[position + 1][0] != index
        args = {**step.args, "ends_part": index} if last else step.args
        found.append((index, PlannedStep(step.name, args)))
    return found


def _steps(part: Part) -> list[PlannedStep]:
    names = list(part.names)
    match part.name:
        case "config-maps":
            return [PlannedStep("recovery.put_config_maps", {"names": names})]
        case "drain":
            return [PlannedStep("recovery.drain_traffic", {"pools": names})]
        case "workload":
            return _workload(part)
        case "router":
            return [
                PlannedStep("recovery.put_router", {"pools": names}),
                PlannedStep("recovery.reach_router", {"pools": names}),
            ]
        case "objectives":
            return [PlannedStep("recovery.put_objectives", {"names": names})]
        case "weights":
            return [PlannedStep("recovery.put_weights")]
        case "scalers":
            return [PlannedStep("recovery.put_scalers", {"names": names})]


def _workload(part: Part) -> list[PlannedStep]:
    way: Json = {"way": part.way}
    anew = part.way == "anew"
    beside = [
        PlannedStep("recovery.publish_services", way),
        PlannedStep("recovery.reach_whole", way),
        PlannedStep("recovery.drain_old"),
    ]
    return [
        PlannedStep("recovery.open_hold", way),
        *proof_of(part.way),
        PlannedStep("recovery.write_roles", way),
        *(beside if anew else []),
        PlannedStep("recovery.reach_alone", way),
        *([PlannedStep("recovery.settle_pace")] if anew else []),
        PlannedStep("recovery.release"),
    ]
