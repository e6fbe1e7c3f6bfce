"""Stop and adopt: freeze at the live counts; take what stands as the place to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.fleet.target import templates_digest
from controlplane.holds.live import LiveSet
from controlplane.holds.parameter import box_as_json
from controlplane.kube.resources import CONFIG_MAPS
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, StepContext
from controlplane.operations.models import Step
from controlplane.upgrades.steplist import ending_steps, steps_of_rows
from controlplane.upgrades.steps.hold import close_requests
from controlplane.upgrades.steps.memory import (
    Memory,
    foreign_write,
    held_by_us,
    look,
    memory_of,
    plan_of,
)
from policy.rollout.adopt import rows_from
from policy.rollout.box import frozen_box
from policy.rollout.holds import ready_groups
from policy.rollout.planner import Row, executor_rows

Json = dict[str, Any]
ADOPTED = "adopted"


def freeze(context: StepContext) -> Outcome:
    """Set every floor and ceiling to the live count. The operation then stands until somebody resumes or aborts."""
    live = look(context)
    box = frozen_box(live.counts())
    if live.parameter is None:
        return Hold("hold-breached", "The hold parameter is gone.", "Retry to stop, or abort.")
    context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, box))
    return Done(
        result={"box": box.as_data()},
        remember={"box": box_as_json(box), "holding": True},
        append=_again(context, memory_of(context).slice_rows),
        held=Hold("stopped", "Stopped at the counts that stand.", "Resume to go on from here, or abort."),
    )


def _again(context: StepContext, slice_rows: dict[str, int]) -> tuple[PlannedStep, ...]:
    """After a resume what was allowed is allowed again: the row of each slice, or the way back once it is planned."""
    if context.operation.phase == "aborting":
        planned = "goal_back" in context.operation.memory
        again: tuple[PlannedStep, ...] = (PlannedStep("upgrades.open_way_back"),) if planned else ()
    else:
        again = tuple(
            PlannedStep("upgrades.raise_row", {"slices": [name], "row": row})
            for name, row in slice_rows.items()
            if row
        )
    to_come = Step.objects.filter(operation_id=context.operation.id, state=Step.State.PENDING)
    if to_come.filter(name__in=["upgrades.release", "upgrades.plan_abort"]).exists():
        return again
    return (*again, PlannedStep("upgrades.release"))  # it was let go before, and holds again now


def adopt(context: StepContext) -> Outcome:
    """Take the counts that stand as the first row, plan the rest from there, and hold as soon as capacity allows it.

    Only while the set still carries the approved templates: other templates were never approved.
    """
    memory, live = memory_of(context), look(context)
    if context.operation.phase == "aborting":
        return Done(result={"adopted": "nothing: the operation is on its way back"})
    if not memory.new:
        return Done(result={"adopted": "nothing: the new revision is not known yet"})
    if finding := _not_adoptable(context, memory, live):
        return finding
    old, new = _sides(live, memory.roles, memory.old, memory.new)
    start, rows = memory.rows[0], _rows_from(memory, old, new)
    adopted: Json = {
        "rows": [[list(r.old), list(r.new), r.kind] for r in (start, *rows)],
        "slice_rows": dict.fromkeys(memory.slices, 1),
        "box": None,
        "round": memory.round + 1,
        "hold_since": {},
        "expires": {},
        # What is kept by the name of a row is of other rows under the same names.
        **dict.fromkeys(("path_evidence", "row_stood", "gates"), {}),
    }
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        close_requests(context, "The rows were counted anew from what stands.")
    if live.parameter is not None:  # fencing has made it where it was gone
        box = Memory({**memory.data, **adopted}).box()
        context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, box))
    also = _hold_anyway((start, *rows), memory.data["minimum"])
    steps = steps_of_rows((start, *rows), first=1, slices=memory.slices, memory=memory.data, also=also)
    return Done(
        result={"from": {"old": old, "new": new}},
        remember=adopted,
        append=(*steps, *ending_steps(memory.data)),
        replace_rest=True,
    )


def _hold_anyway(rows: Sequence[Row], minimum: Sequence[int]) -> dict[int, list[str]]:
    """Where an adopted operation stops whatever the rules say: what stands was not approved as a row, and a hold may
    have been waiting for votes. At once, or at the first row that keeps the minimum ready where this one does not."""
    standing = tuple(o + n for o, n in zip(rows[1].old, rows[1].new, strict=True))
    capacity = [rows[0].old, standing, *ready_groups(rows)[2:]]
    kept = (
        index
        for index in range(1, len(rows))
        if all(ready >= least for ready, least in zip(capacity[index], minimum, strict=True))
    )
    return {index: [ADOPTED] for index in (next(kept, None),) if index is not None}


def _rows_from(memory: Memory, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[Row, ...]:
    target = memory.rows[-1].new
    rows = rows_from(
        initial=memory.rows[0].old,
        old=old,
        new=new,
        target=target,
        surge=memory.data["surge"],
        unavailable=memory.data["unavailable"],
    )
    return executor_rows(rows, target=target)


def _not_adoptable(context: StepContext, memory: Memory, live: LiveSet) -> Hold | None:
    content = plan_of(context).content or {}
    if templates_digest(live.roles) != templates_digest(content["roles_after"]):
        return foreign_write(context, live) or Hold(
            "adopt-other-templates",
            "The set does not carry the approved templates, so there is nothing approved to adopt.",
            "Put the approved roles back and retry, or abort.",
        )
    if len(memory.slices) > 1:
        return Hold(
            "adopt-sliced",
            "Adopting a row off plan is not offered for a set with several slices.",
            "Abort, or retry.",
        )
    old, _ = _sides(live, memory.roles, memory.old, memory.new)
    if any(now > at_start for now, at_start in zip(old, memory.rows[0].old, strict=True)):
        return Hold(
            "adopt-grown", "The old revision stands above its start; that is no row of this plan.", "Abort."
        )
    return None


def _sides(live: LiveSet, roles: list[str], old: str, new: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    counts = live.counts()
    return (
        tuple(counts.get(("0", old, role), 0) for role in roles),
        tuple(counts.get(("0", new, role), 0) for role in roles),
    )
