"""From a plan to the list of steps: names and arguments only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.operations.contract import PlannedStep
from policy.rollout.holds import find_holds
from policy.rollout.planner import Row

Json = dict[str, Any]


def upgrade_steps(memory: Mapping[str, Any]) -> tuple[PlannedStep, ...]:
    """Every step of an upgrade, in order, from the memory that start wrote."""
    rows = [Row(tuple(old), tuple(new), kind) for old, new, kind in memory["rows"]]
    names: list[str] = list(memory["slices"])
    turns = [[name] for name in names] if memory["options"]["slice_order"] == "one-by-one" else [names]
    middle = [step for slices in turns for step in steps_of_rows(rows, first=1, slices=slices, memory=memory)]
    return (
        PlannedStep("upgrades.open_hold"),
        PlannedStep("upgrades.prove_hold"),
        *captured("before an upgrade"),
        PlannedStep("holds.pause_scalers"),
        PlannedStep("upgrades.write_roles"),
        PlannedStep("upgrades.read_revision"),
        *middle,
        *ending_steps(memory),
    )


def captured(reason: str) -> tuple[PlannedStep, ...]:
    """What stands becomes a combination that can be restored, in our database and in the cluster."""
    return (PlannedStep("recovery.capture", {"reason": reason}), PlannedStep("recovery.publish_copies"))


def path_place(slices: Sequence[str], row: int) -> str:
    """How evidence of the path at a hold is named."""
    return f"slice-{'+'.join(slices)}-row-{row}"


def path_at_hold(slices: Sequence[str], row: int) -> PlannedStep:
    """The look at the path of the new revision before a hold lets go on."""
    place: Json = {"slices": list(slices), "row": row}
    return PlannedStep("upgrades.prove_path", {"side": "new", "at": path_place(slices, row), **place})


def ending_steps(memory: Mapping[str, Any]) -> tuple[PlannedStep, ...]:
    """What comes after the last row."""
    return (
        PlannedStep("upgrades.verify"),
        PlannedStep("upgrades.prove_path", {"side": "new", "at": "end"}),
        *([PlannedStep("upgrades.settle_roles")] if memory["settle"] else []),
        PlannedStep("upgrades.release"),
        PlannedStep("holds.give_back_scalers"),
        *captured("after an upgrade"),
        PlannedStep("upgrades.record"),
        PlannedStep("upgrades.finish", {"outcome": "succeeded"}),
    )


def steps_of_rows(
    rows: Sequence[Row],
    *,
    first: int,
    slices: Sequence[str],
    memory: Mapping[str, Any],
    also: Mapping[int, Sequence[str]] | None = None,
) -> tuple[PlannedStep, ...]:
    """Raise, reach and, where a rule says so, hold: for the rows from index `first` on, for these slices.

    `also` names rows that hold whatever the rules say, with the reasons.
    """
    target = memory["rows"][-1][1]
    holds = find_holds(rows, rules=memory["options"]["holds"], target=target, minimum=memory["minimum"])
    stops = {hold.row: list(hold.rules) for hold in holds.rows}
    for row, reasons in (also or {}).items():
        stops[row] = [*reasons, *stops.get(row, [])]
    steps: list[PlannedStep] = []
    published = False
    for index in range(first, len(rows)):
        place: Json = {"slices": list(slices), "row": index}
        steps += [PlannedStep("upgrades.raise_row", place), PlannedStep("upgrades.reach_row", place)]
        whole = all(n or not t for n, t in zip(rows[index].new, target, strict=True))
        if whole and not published:
            steps.append(PlannedStep("upgrades.publish_services"))
            published = True
        if index in stops and whole:  # a revision that lacks a role gets no request
            steps.append(path_at_hold(slices, index))
        if index in stops:
            steps.append(PlannedStep("upgrades.hold", {**place, "rules": stops[index]}))
    return tuple(steps)
