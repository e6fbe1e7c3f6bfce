"""Looks of the workload part: the good revision whole and stable, and then alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.holds.guards import restore_guards
from controlplane.holds.leftover import draining, not_taken_up, others_of, scale_to_zero
from controlplane.holds.live import LiveSet, read_pods, shown
from controlplane.holds.parameter import box_from_json
from controlplane.holds.steadiness import pod_sign, same_since
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, Wait
from controlplane.recovery.ordering import proof_of
from controlplane.recovery.parts.task import Task, foreign_write, goal_of
from policy.recovery.order import Way
from policy.rollout.box import Key

Json = dict[str, Any]
LOOK_EVERY = 2.0  # the watch rings earlier when something moves


def reach_whole(task: Task, *, way: Way) -> Outcome:
    """The good revision is complete and ready on every role, and stays so; what served before keeps its floor."""
    live = task.writer.look()
    if other := _not_whole(task, live, way, PlannedStep("recovery.reach_whole", {"way": way})):
        return other
    pods = read_pods(task.kube, task.namespace, task.writer.name, task.good)
    sign = sorted(pod_sign(pod) for pod in pods)
    since, calm = same_since(task.memory.get("calm"), step=task.step, sign=sign, now=task.now)
    stood = (task.now - since).total_seconds()
    if stood >= task.stable_for:
        return Done(result={"revision": task.good, "pods": len(pods)}, remember={"calm": {}})
    if task.waited >= task.stuck_after + task.stable_for:
        return stuck(task, ["its pods restart or flicker"])
    return Wait(
        min(LOOK_EVERY, max(0.2, task.stable_for - stood)),
        f"revision {task.good} to stay ready without restart or flicker for {task.stable_for:g} s",
        remember={"calm": calm},
    )


def reach_alone(task: Task, *, way: Way) -> Outcome:
    """The good revision is complete and ready, and every other revision is at 0."""
    live = task.writer.look()
    if other := _not_whole(task, live, way, PlannedStep("recovery.reach_alone", {"way": way})):
        return other
    if others := others_of(live, task.good):
        return _leaking(task, live, others, way)
    if kept := not_taken_up(live, task.good, waited=task.waited):
        return Wait(1, f"the controller to go by the recorded roles and drop {', '.join(kept)}")
    return Done(result={"revision": task.good, "counts": shown(live.counts())})


def scale_leaked(task: Task) -> Outcome:
    """Scale to 0 what the controller has left behind, each set under the resourceVersion just read."""
    live = task.writer.look()
    if foreign_write(task, live):
        return Done(result={"scaled_to_0": []})  # the look that follows tells
    return Done(result={"scaled_to_0": scale_to_zero(task.kube, live, task.good)})


def _not_whole(task: Task, live: LiveSet, way: Way, again: PlannedStep) -> Outcome | None:
    """What comes of a look where something is in the way or the good revision is not complete; None where it is."""
    if finding := in_the_way(task, live, way, again):
        return finding
    if short := live.short_of(task.good, goal_of(task.document, live)):
        return _not_yet(task, f"revision {task.good} to be complete: {', '.join(short)}", short)
    return None


def in_the_way(task: Task, live: LiveSet, way: Way, again: PlannedStep) -> Outcome | None:
    """What another writer, another label or a breached hold makes of a look; `again` is done after the repair."""
    if finding := foreign_write(task, live):
        if task.memory.get("told_written_over") == task.step:
            rewrite = PlannedStep("recovery.write_roles", {"way": way})
            return Done(
                result={"written_over": True}, remember={"told_written_over": ""}, append=(rewrite, again)
            )
        return finding
    if finding := _other_label(task, live):
        return finding
    return _breached(task, live, way, again)


def _other_label(task: Task, live: LiveSet) -> Hold | None:
    """The controller made another label of the recorded roles: a finding, not a success (digest 1.4b)."""
    known = {task.good, "", *task.memory.get("known_labels", [])}
    strangers = sorted(live.labels() - known)
    if not strangers or task.good in live.labels():
        return None
    return Hold(
        code="label-not-back",
        sentence=f"The recorded roles came back as revision {strangers[0]}, not as {task.good}.",
        next_action="The controller or its defaults changed. It is held at 0 groups: abort, and plan an upgrade to the"
        " recorded roles.",
        facts={"labels": strangers},
    )


def _breached(task: Task, live: LiveSet, way: Way, again: PlannedStep) -> Outcome | None:
    """A hold that is gone or changed is told; after a retry it is put back from what stands now, and proved where it
    must be: also one that looks right again, because API servers may not enforce it.

    A guard that is gone is made again at once; one that is not as shipped is for a person. Where the good revision is
    started anew the proof asks for it; going back, it is told once, and a retry goes on without it."""
    box = box_from_json(task.memory.get("box"))
    if box is None or not task.memory.get("holding"):
        return None
    if task.memory.get("told_breach") == task.step:
        return Done(
            result={"hold": "put back"},
            remember={"told_breach": "", "told_guards": True},
            append=(PlannedStep("recovery.open_hold", {"way": way}), *proof_of(way), again),
        )
    known = way == "back" and task.memory.get("told_guards")
    guards = [] if known else restore_guards(task.kube, task.guards)
    wrong = [*task.writer.wrong_parameter(live.parameter, [box]), *guards]
    if not wrong:
        return None
    edited = any(not problem.endswith("is missing") for problem in guards)
    mend = " and install the admission policies and bindings as shipped" if edited else ""
    return Hold(
        code="hold-breached",
        sentence=f"The hold was breached: {'; '.join(wrong)}.",
        next_action=f"Find out who did it{mend}; then retry: the hold is put back around what stands now; or abort.",
        facts={"wrong": wrong},
        remember={"told_breach": task.step},
    )


def _not_yet(task: Task, what: str, short: Sequence[str]) -> Outcome:
    return stuck(task, short) if task.waited >= task.stuck_after else Wait(LOOK_EVERY, what)


def stuck(task: Task, short: Sequence[str]) -> Hold:
    """The finding that the recorded revision does not come up; `short` says what of it."""
    return Hold(
        code="restore-not-ready",
        sentence=f"Revision {task.good} is not complete and stable after {task.waited:.0f} s: {', '.join(short)}.",
        next_action="Look at its pods (room, image, start time), then retry; or abort: what served keeps its groups.",
        facts={"short": list(short)},
        remember={"calm": {}, "progress": {}},
    )


def _leaking(task: Task, live: LiveSet, others: Sequence[Key], way: Way) -> Outcome:
    """The good revision serves whole; the controller drains the others by itself, unless it has forgotten them."""
    names = ", ".join(live.children[key].name for key in others)
    going = draining(live, others, kept=task.memory.get("draining"), step=task.step, now=task.now)
    if going:
        return Wait(1, f"other revisions to go: {names}", remember={"draining": going})
    return Done(
        result={"leaked": names},
        append=(PlannedStep("recovery.scale_leaked"), PlannedStep("recovery.reach_alone", {"way": way})),
    )
