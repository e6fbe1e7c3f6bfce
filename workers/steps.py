"""Step and run names to the functions that carry them out: the only place that knows both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from controlplane.holds.scalers import orphans as scaler_orphans
from controlplane.holds.scalers import steps as scalers
from controlplane.operations import looks
from controlplane.operations.contract import (
    Hold,
    Outcome,
    RunDef,
    RunRegistry,
    StepContext,
    StepDef,
    StepFunction,
    StepRegistry,
)
from controlplane.recovery import capturing, counting, publishing, services
from controlplane.recovery import steps as recovery
from controlplane.upgrades import checking
from controlplane.upgrades.steps import back, ending, forward, freeze, hold, path, rows, settle
from controlplane.upgrades.steps.fence import fence_parameter, fence_world
from controlplane.upgrades.steps.memory import SetLost

Fence: TypeAlias = Callable[[StepContext], Hold | None]
# How a kind of change raises its number; steps that several kinds use are fenced by the operation's kind.
FENCES: Mapping[str, Fence] = {"upgrade": fence_world, "restore": recovery.fence_world}


def _fence_of_kind(context: StepContext) -> Hold | None:
    return FENCES.get(context.operation.kind, scalers.fence_installation)(context)


def _on_its_set(run: StepFunction) -> StepFunction:
    @functools.wraps(run)
    def step(context: StepContext, **args: Any) -> Outcome:
        try:
            return run(context, **args)
        except SetLost as lost:
            return back.set_lost(context, lost.finding)

    return step


def _writes(run: StepFunction, *, fence: Fence = fence_world) -> StepDef:
    return StepDef(run=_on_its_set(run), writes=True, fence_world=fence)


def _looks(run: StepFunction) -> StepDef:
    return StepDef(run=_on_its_set(run), writes=False, fence_world=fence_world)


def _writes_for_any(run: StepFunction) -> StepDef:
    return StepDef(run=run, writes=True, fence_world=_fence_of_kind)


def _looks_for_any(run: StepFunction) -> StepDef:
    return StepDef(run=run, writes=False, fence_world=_fence_of_kind)


STEPS: StepRegistry = {
    scalers.PAUSE: _writes_for_any(scalers.pause_scalers),
    scalers.GIVE_BACK: _writes_for_any(scalers.give_back_scalers),
    "recovery.capture": _looks_for_any(capturing.capture),
    "recovery.verify_captured": _looks_for_any(capturing.verify_captured),
    "recovery.publish_copies": _writes_for_any(publishing.publish_copies),
    "recovery.check": StepDef(run=recovery.check, writes=False, fence_world=recovery.fence_world),
    **{
        name: StepDef(run=recovery.step_of(part), writes=writes, fence_world=recovery.fence_world)
        for name, (part, writes) in recovery.PARTS.items()
    },
    "recovery.count": StepDef(run=counting.count_requests, writes=False, fence_world=recovery.fence_world),
    "recovery.record": StepDef(run=recovery.record, writes=False, fence_world=recovery.fence_world),
    "recovery.finish": StepDef(run=recovery.finish, writes=False, fence_world=recovery.fence_world),
    "recovery.freeze": StepDef(run=recovery.freeze, writes=True, fence_world=recovery.fence_world),
    "recovery.plan_abort": StepDef(run=recovery.plan_abort, writes=False, fence_world=recovery.fence_world),
    "upgrades.open_hold": _writes(forward.open_hold),
    "upgrades.prove_hold": _writes(forward.prove_hold, fence=fence_parameter),
    "upgrades.write_roles": _writes(forward.write_roles),
    "upgrades.read_revision": _looks(forward.read_revision),
    "upgrades.cure_partial_init": _writes(forward.cure_partial_init),
    "upgrades.publish_services": _writes(forward.publish_services),
    "upgrades.raise_row": _writes(rows.raise_row),
    "upgrades.reach_row": _looks(rows.reach_row),
    "upgrades.repair_hold": _writes(rows.repair_hold, fence=fence_parameter),
    "upgrades.hold": _looks(hold.hold),
    "upgrades.verify": _looks(ending.verify),
    "upgrades.prove_path": _looks(path.prove_path),
    "upgrades.settle_roles": _writes(settle.settle_roles),
    "upgrades.record": _looks(ending.record),
    "upgrades.release": _writes(ending.release),
    "upgrades.finish": _looks(ending.finish),
    "upgrades.plan_abort": _looks(back.plan_abort),
    "upgrades.open_way_back": _writes(back.open_way_back),
    "upgrades.write_back": _writes(back.write_back),
    "upgrades.reach_back": _looks(back.reach_back),
    "upgrades.scale_leaked": _writes(back.scale_leaked),
    "upgrades.freeze": _writes(freeze.freeze),
    "upgrades.adopt": _writes(freeze.adopt),
}


RUNS: RunRegistry = {
    services.CAPTURE: RunDef(run=capturing.capture_now),
    services.COMPARE: RunDef(run=capturing.compare),
    services.PLAN: RunDef(run=capturing.plan_restore),
    "upgrades.check_plan": RunDef(run=checking.check_plan, failed=checking.mark_failed),
    scaler_orphans.GIVE_BACK_ORPHANS: RunDef(run=scaler_orphans.give_back_orphans),
    looks.RUN_SERIES: RunDef(run=looks.carry_on_series, failed=looks.series_failed),
}
