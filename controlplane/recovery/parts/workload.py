"""The workload part: hold with a floor on what serves, write the recorded roles, wait, drain, let go.

Two ways. `back`: the good revision has a ready group of every role, so the recorded roles are written back as an abort
does: it may only grow, everything else only shrink. `anew`: it is gone, so the whole of it is started beside what
serves, which keeps every group until the good revision is complete, ready and stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.fleet.names import INITIAL_REPLICAS
from controlplane.fleet.target import templates_digest
from controlplane.holds.fencing import touch
from controlplane.holds.guards import guard_problems
from controlplane.holds.live import LiveSet, read_parameter, roles_digest
from controlplane.holds.parameter import box_as_json, box_from_json, is_holding, owner_of, released
from controlplane.holds.proof import PROVE_AGAIN, guards_seen, prove_standing
from controlplane.holds.writer import foreign_hold
from controlplane.kube.errors import Conflict
from controlplane.kube.resources import CONFIG_MAPS, DISAGGREGATED_SETS
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, Wait
from controlplane.recovery.parts.task import Task, goal_of
from policy.recovery.order import Way
from policy.recovery.pace import whole_surge
from policy.rollout.box import Box, abort_box, frozen_box

Json = dict[str, Any]


def open_hold(task: Task, *, way: Way) -> Outcome:
    """Write the hold of this way; one that stood for a superseded operation is taken over, so that there is no moment
    without one."""
    live = task.writer.look()
    if live.parameter is None:
        return Wait(1, "the hold parameter")
    if foreign := _held_by_others(task, live.parameter):
        return foreign
    box = _box(task, live, way)
    if task.writer.wrong_parameter(live.parameter, [box]):
        held = task.writer.held(live.parameter, box, old_roles=task.workload["roles"])
        task.kube.replace(CONFIG_MAPS, held)
    return Done(
        result={"box": box.as_data(), "way": way},
        remember={
            "box": box_as_json(box),
            "holding": True,
            "way": way,
            "let_go": False,
            "known_labels": sorted(live.labels()),
            "prove_above": task.writer.fence,
            "guards_seen": guards_seen(
                task.kube, task.guards, kept=task.memory.get("guards_seen") or {}, now=task.now
            ),
        },
    )


def in_front(task: Task, *, way: Way) -> Hold | None:
    """What would stop the workload part, asked before any other part is written: traffic that was drained for a
    restore which then cannot go on is an outage for nothing."""
    parameter = read_parameter(task.kube, task.namespace, task.writer.name)
    if parameter is not None and (foreign := _held_by_others(task, parameter)):
        return foreign
    return unenforced(guard_problems(task.kube, task.guards)) if way == "anew" else None


def _held_by_others(task: Task, parameter: Json) -> Hold | None:
    if not is_holding(parameter) or task.writer.is_ours(parameter) or _inherited(task, parameter):
        return None
    return foreign_hold(parameter)


def unenforced(problems: list[str]) -> Hold | None:
    """The finding that guards are not as shipped; None where they are."""
    if not problems:
        return None
    return Hold(
        code="hold-not-proved",
        sentence=f"The hold would not be enforced as shipped: {'; '.join(problems)}.",
        next_action=PROVE_AGAIN,
        facts={"guards": problems},
    )


def prove_hold(task: Task) -> Outcome:
    """The floors on what serves are enforced, before anything is written that would have it drained."""
    return prove_standing(
        task.kube,
        task.writer.look(),
        box_from_json(task.memory.get("box")) or Box(),
        operation=task.writer.operation,
        above=int(task.memory["prove_above"]),
        guards=task.guards,
        kept=task.memory.get("guards_seen") or {},
        now=task.now,
        waited=task.waited,
    )


def trust_hold(task: Task) -> Outcome:
    """In place of a proof, for break-glass, which no hold refuses: the policies stand as shipped."""
    return unenforced(guard_problems(task.kube, task.guards)) or Done(
        result={"dry_runs": "none: no hold refuses break-glass"}
    )


def _inherited(task: Task, parameter: Json | None) -> bool:
    """Whether the standing parameter is of the operation that this restore took over from."""
    data = (parameter or {}).get("data") or {}
    installation = task.memory.get("inherits_installation") or task.writer.installation
    return bool(data.get("operation")) and (data.get("operation"), data.get("installation")) == (
        task.memory.get("inherits"),
        installation,
    )


def _box(task: Task, live: LiveSet, way: Way) -> Box:
    goal, counts = goal_of(task.document, live), live.counts()
    if way == "back":
        kept = {key: count for key, count in counts.items() if key[1] == task.good}
        return abort_box(forward=Box(kept, counts), counts=counts, old=task.good, goal=goal)
    floors = {key: count for key, count in counts.items() if key[1] != task.good and count}
    return Box(floors, {**_only_less(task, live), **_growth(task, live, goal)})


def _only_less(task: Task, live: LiveSet) -> dict[tuple[str, str, str], int]:
    return {key: count for key, count in live.counts().items() if key[1] != task.good}


def _growth(task: Task, live: LiveSet, goal: Mapping[str, int]) -> dict[tuple[str, str, str], int]:
    counts = live.counts()
    keys = {
        (slice_name, task.good, role): count for slice_name in live.slices for role, count in goal.items()
    }
    return {key: max(count, counts.get(key, 0)) for key, count in keys.items()}


def write_roles(task: Task, *, way: Way) -> Outcome:
    """Replace `spec.roles` (and the placement) under the resourceVersion just read; never a partial apply, which
    could reorder them."""
    live = task.writer.look()
    wanted = beside(task.document, live) if way == "anew" else task.workload["roles"]
    placed = live.body["spec"].get("placementPolicy") == task.workload["placement"]
    if roles_digest(live.roles) == roles_digest(wanted) and placed:
        return Done(result={"already_written": True}, remember={"expected": roles_digest(wanted)})
    spec = {**live.body["spec"], "roles": wanted}
    if not placed:
        spec.pop("placementPolicy", None)
        if task.workload["placement"] is not None:
            spec["placementPolicy"] = task.workload["placement"]
    try:
        stored = task.kube.replace(DISAGGREGATED_SETS, {**live.body, "spec": spec})
    except Conflict:
        return Wait(1, "the set to stand still for the write")
    written: list[Json] = stored["spec"]["roles"]
    remember: Json = {"expected": roles_digest(written), "calm": {}}
    if templates_digest(written) != task.workload["templates"]:
        return Hold(
            code="stored-differs",
            sentence="The API server stored other templates than the recorded ones.",
            next_action="A webhook or a new default changed them on the way: look what did, then retry; or abort.",
            remember=remember,
        )
    return Done(result={"resource_version": stored["metadata"]["resourceVersion"]}, remember=remember)


def beside(document: Json, live: LiveSet) -> list[Json]:
    """The recorded roles with so much surge that the controller has two rows only (policy/recovery/pace)."""
    roles, good = document["workload"]["roles"], document["workload"]["revision"]
    pace: Json = {}
    for name, goal in goal_of(document, live).items():
        old = [child for key, child in live.children.items() if key[1] != good and key[2] == name]
        # Per slice, and over what the controller noted at the start of an earlier rollout.
        most = sum(max(child.wanted, _noted(child.body)) for child in old)
        pace[name] = {"maxSurge": whole_surge(goal, most), "maxUnavailable": 0}
    return [
        {
            **role,
            "spec": {
                **role["spec"],
                "rolloutStrategy": {
                    **(role["spec"].get("rolloutStrategy") or {}),
                    "type": "RollingUpdate",
                    "rollingUpdateConfiguration": {
                        **(
                            (role["spec"].get("rolloutStrategy") or {}).get("rollingUpdateConfiguration")
                            or {}
                        ),
                        **pace[role["name"]],
                    },
                },
            },
        }
        for role in roles
    ]


def _noted(lws: Mapping[str, Any]) -> int:
    text = (lws["metadata"].get("annotations") or {}).get(INITIAL_REPLICAS, "")
    return int(text) if text.isdecimal() and len(text) < 6 else 0


def drain_old(task: Task) -> Outcome:
    """The good revision is complete and stable: let everything else go, and have the controller look."""
    live = task.writer.look()
    if live.parameter is None:
        return Wait(1, "the hold parameter")
    before = box_from_json(task.memory.get("box")) or Box()
    goal = goal_of(task.document, live)
    if short := live.short_of(task.good, goal):  # since the look that found it whole
        again = (PlannedStep("recovery.reach_whole", {"way": "anew"}), PlannedStep("recovery.drain_old"))
        return Done(result={"short": short}, append=again)
    kept = {key: count for key, count in _growth(task, live, goal).items() if count}
    box = Box(
        {key: min(count, live.counts().get(key, 0)) for key, count in kept.items()},
        {**{key: count for key, count in before.ceilings.items() if key[1] != task.good}, **kept},
    )
    if task.writer.wrong_parameter(live.parameter, [box]):
        held = task.writer.held(live.parameter, box, old_roles=task.workload["roles"])
        task.kube.replace(CONFIG_MAPS, held)
        touch(task.writer, live.body)
    remember: Json = {"box": box_as_json(box), "let_go": True, "calm": {}}
    return Done(result={"box": box.as_data()}, remember=remember)


def settle_pace(task: Task) -> Outcome:
    """Write the recorded pace back. Outside the revision, so nothing rolls."""
    live = task.writer.look()
    if templates_digest(live.roles) != task.workload["templates"]:
        return Hold(
            "foreign-write",
            "Somebody else changed the templates at the end of the restore.",
            "Stop that writer, then start another restore; abort this one.",
        )
    wanted = task.workload["roles"]
    if roles_digest(live.roles) != roles_digest(wanted):
        body = {**live.body, "spec": {**live.body["spec"], "roles": wanted}}
        task.kube.replace(DISAGGREGATED_SETS, body)
    return Done(remember={"expected": roles_digest(wanted)})


def freeze(task: Task) -> Outcome:
    """Stop: every floor and every ceiling is the live count. What was allowed is allowed again after a resume."""
    live = task.writer.look()
    if live.parameter is None:
        return Hold("hold-breached", "The hold parameter is gone.", "Retry to stop, or abort.")
    box = frozen_box(live.counts())
    held = task.writer.held(live.parameter, box, old_roles=task.workload["roles"])
    task.kube.replace(CONFIG_MAPS, held)
    way = task.memory.get("way")
    again = (
        *([PlannedStep("recovery.open_hold", {"way": way})] if way else []),
        *([PlannedStep("recovery.drain_old")] if way and task.memory.get("let_go") else []),
    )
    return Done(
        result={"box": box.as_data()},
        remember={"box": box_as_json(box), "holding": True},
        append=again,
        held=Hold("stopped", "Stopped at the counts that stand.", "Resume to go on from here, or abort."),
    )


def release(task: Task) -> Outcome:
    """Let the parameter go, ours or the one that was inherited."""
    parameter = read_parameter(task.kube, task.namespace, task.writer.name)  # the set itself may be gone
    if parameter is None or not is_holding(parameter):
        return Done(result={"released": False}, remember={"holding": False, "box": None, "way": ""})
    if not (task.writer.is_ours(parameter) or _inherited(task, parameter)):
        return Hold(
            code="foreign-hold",
            sentence=f"The parameter holds for {owner_of(parameter)}, not for this operation.",
            next_action="Find out who wrote it; then retry.",
        )
    task.kube.replace(CONFIG_MAPS, released(parameter, fence=task.writer.fence))
    return Done(result={"released": True}, remember={"holding": False, "box": None, "way": ""})
