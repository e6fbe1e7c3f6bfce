"""The way back: the recorded templates in their order, then wait, then release. Always open, never stuck silently:
whatever blocks it is shown as what the operation waits for, and tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.approvals.services import mark_stale
from controlplane.audit.actor import worker
from controlplane.fleet.target import templates_digest
from controlplane.holds.leftover import draining, not_taken_up, others_of, scale_to_zero
from controlplane.holds.live import LiveSet, last_writer, roles_digest
from controlplane.holds.parameter import box_as_json, is_holding
from controlplane.kube.errors import Conflict, KubeError
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.upgrades.steps.ending import images_by_role, pods_of
from controlplane.upgrades.steps.memory import (
    Memory,
    held_by_us,
    look,
    memory_of,
    plan_of,
    wrong_parameter,
)
from policy.rollout.box import Key

Json = dict[str, Any]

RETRY_EVERY = 5.0

_WRITTEN_BACK = (
    PlannedStep("upgrades.open_way_back"),
    PlannedStep("upgrades.write_back"),
    PlannedStep("upgrades.reach_back"),
)


def plan_abort(context: StepContext) -> Outcome:
    """The steps of the way back. Nothing to write back where the new roles were never written."""
    mark_stale(
        subject_kind="operations.hold",
        subject_id=str(context.operation.id),
        reason="The operation is being aborted.",
        actor=worker("upgrade"),
    )
    live = look(context)
    untouched = templates_digest(live.roles) == templates_digest(_before(context))
    by_a_rule = not (context.operation.memory.get("abort") or {}).get("by")
    ending: Json = {"outcome": "rolled-back" if by_a_rule else "aborted"}
    return Done(
        result={"roles_untouched": untouched},
        remember={"goal_back": _goal(live, _roles_back(context, live.body)), "box": None},
        append=(*_WRITTEN_BACK, *_let_go(ending, seen=not untouched)),
    )


def _goal(live: LiveSet, roles: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {role["name"]: live.target(role) for role in roles}


def set_lost(context: StepContext, finding: Hold) -> Outcome:
    """What any step says where the approved set is gone. On the way back there is nothing to go back to: let the
    parameter go, or a set of the same name could never start, and end as failed."""
    if context.operation.phase != "aborting":
        return finding
    ending: Json = {"outcome": "failed", "reason": finding.sentence}
    return Done(result={"reason": finding.sentence}, append=_let_go(ending), replace_rest=True)


def _let_go(ending: Json, *, seen: bool = False) -> tuple[PlannedStep, ...]:
    """The end of every way back, whatever came of it: scalers after the hold, or they would scale against it; then,
    with `seen`, the path of the old revision, whose decode engines may still hold agents of engines that are gone."""
    return (
        PlannedStep("upgrades.release"),
        PlannedStep("holds.give_back_scalers"),
        *([PlannedStep("upgrades.prove_path", {"side": "old", "at": "abort"})] if seen else []),
        PlannedStep("upgrades.finish", ending),
    )


def _before(context: StepContext) -> list[Json]:
    roles: list[Json] = (plan_of(context).content or {})["roles_before"]
    return roles


def _roles_back(context: StepContext, live: Json) -> list[Json]:
    """The recorded roles with the replicas that stand now, unless this operation changed those itself."""
    content = plan_of(context).content or {}
    ours = {r["name"]: r["spec"].get("replicas") for r in content["roles_after"]}
    stands = {r["name"]: r["spec"].get("replicas") for r in live["spec"]["roles"]}
    back = []
    for role in _before(context):
        name, recorded = role["name"], role["spec"].get("replicas")
        changed_by_us = ours.get(name) != recorded
        keep = recorded if changed_by_us or name not in stands else stands[name]
        back.append({**role, "spec": {**role["spec"], **({} if keep is None else {"replicas": keep})}})
    return back


def open_way_back(context: StepContext) -> Outcome:
    """Let the old revision grow to its goal; every other revision may only shrink. Leaves a released hold released."""
    memory, live = memory_of(context), look(context)
    if live.parameter is None or not is_holding(live.parameter):
        return Done(result={"hold": "not standing"}, remember={"holding": False})
    box = memory.way_back(live)
    if wrong_parameter(context, live.parameter, [box]):
        context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, box))
    return Done(result={"box": box.as_data()}, remember={"box": box_as_json(box)})


def write_back(context: StepContext) -> Outcome:
    """Write the recorded roles under the resourceVersion just read. A refusal of the server is waited out, in sight.

    Where somebody changed replicas since the way back was planned, the hold has to allow those first."""
    memory, live = memory_of(context), look(context)
    back = _roles_back(context, live.body)
    if (goal := _goal(live, back)) != memory.data["goal_back"]:
        return Done(
            result={"goal": goal}, remember={"goal_back": goal, "box": None}, append=_WRITTEN_BACK[:2]
        )
    if roles_digest(live.roles) == roles_digest(back):
        return Done(result={"already_written": True}, remember={"expected": roles_digest(back)})
    body = {**live.body, "spec": {**live.body["spec"], "roles": back}}
    try:
        stored = context.kube.replace(DISAGGREGATED_SETS, body)
    except Conflict:
        return Wait(1, "the set to stand still for the write back")
    except KubeError as error:
        return Wait(
            RETRY_EVERY, f"the API server to take the old roles back: {error.message[:300]}", who="operators"
        )
    return Done(remember={"expected": roles_digest(stored["spec"]["roles"]), "progress": {}})


def reach_back(context: StepContext) -> Outcome:
    """A look: the old revision complete and ready on every role, every other revision at 0."""
    memory, live = memory_of(context), look(context)
    if roles_digest(live.roles) != memory.data["expected"]:
        return _written_over(context, live)
    goal = {str(role): int(count) for role, count in memory.data["goal_back"].items()}
    if finding := _other_label(memory, live):
        return finding
    if short := live.short_of(memory.old, goal, slices=memory.slices):
        return Wait(2, f"revision {memory.old} to be complete: {', '.join(short)}", who="")
    if others := others_of(live, memory.old):
        return _leaking(context, live, others)
    waited = (context.now - context.first_claimed_at).total_seconds()
    if kept := not_taken_up(live, memory.old, waited=waited):
        return Wait(1, f"the controller to go by the old roles and drop {', '.join(kept)}")
    images = images_by_role(pods_of(context, memory.old))
    return Done(
        result={"revision": memory.old, "images": images, "same_images": _same_images(memory, images)},
        remember={"images_after_abort": images},
    )


def _same_images(memory: Memory, images: Json) -> bool | None:
    before = memory.data.get("images_before")
    return None if not before else before == images


def _written_over(context: StepContext, live: LiveSet) -> Outcome:
    """Other replicas alone are a wish that stands, as before the abort. Anything else is told once; after a retry or
    another abort the old roles are written back once more."""
    told = context.operation.memory.get("told_written_over") == context.step_id
    if told or roles_digest(live.roles) == roles_digest(_roles_back(context, live.body)):
        return Done(result={"written_over_by": last_writer(live.body)}, append=_WRITTEN_BACK)
    return Hold(
        code="foreign-write",
        sentence=f"Somebody else wrote spec.roles during the abort: last writer {last_writer(live.body)}.",
        next_action="Stop that writer, then abort again or retry: the old roles are written back once more.",
        remember={"told_written_over": context.step_id},
    )


def _other_label(memory: Memory, live: LiveSet) -> Hold | None:
    """The controller made another label of the recorded roles: a finding, not a success (digest 1.4b)."""
    known = {memory.old, memory.new, ""} | set(memory.data.get("known_labels", []))
    strangers = sorted(live.live_labels() - known)
    if not strangers or live.live_labels() & {memory.old}:
        return None
    return Hold(
        code="label-not-back",
        sentence=f"The recorded roles came back as revision {strangers[0]}, not as {memory.old}.",
        next_action="The controller or its defaults changed; compare the templates, then retry or stop here.",
        facts={"labels": strangers},
    )


def _leaking(context: StepContext, live: LiveSet, others: Sequence[Key]) -> Outcome:
    """The old revision serves whole; the controller drains the others by itself, unless it has forgotten them."""
    names = ", ".join(live.children[key].name for key in others)
    kept = context.operation.memory.get("draining")
    going = draining(live, others, kept=kept, step=context.step_id, now=context.now)
    if going:
        return Wait(2, f"other revisions to go: {names}", remember={"draining": going})
    return Done(
        result={"leaked": names},
        append=(PlannedStep("upgrades.scale_leaked"), PlannedStep("upgrades.reach_back")),
    )


def scale_leaked(context: StepContext) -> Outcome:
    """Scale to 0 what the controller has left behind, each set under the resourceVersion just read."""
    memory, live = memory_of(context), look(context)
    if roles_digest(live.roles) != memory.data["expected"]:
        return Done(result={"scaled_to_0": []})  # the look that follows tells
    return Done(result={"scaled_to_0": scale_to_zero(context.kube, live, memory.old)})
