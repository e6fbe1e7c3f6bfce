"""One row at a time: raise the box to exactly the next row, touch the set, look until the row stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.holds.guards import restore_guards
from controlplane.holds.live import LiveSet, read_pods, shown
from controlplane.holds.parameter import same_box, standing_box
from controlplane.holds.steadiness import pod_sign, ready_condition, same_since
from controlplane.kube.resources import CONFIG_MAPS
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.upgrades.steplist import path_place
from controlplane.upgrades.steps.fence import touch
from controlplane.upgrades.steps.forward import still_missing
from controlplane.upgrades.steps.gates import gated_row
from controlplane.upgrades.steps.memory import (
    Memory,
    breach,
    foreign_write,
    held_by_us,
    look,
    memory_of,
    wrong_parameter,
)
from controlplane.upgrades.steps.path_base import path_moved
from policy.rollout.box import Key

Json = dict[str, Any]

TOUCHES = 10
LOOK_EVERY = 5.0  # the watch rings earlier when something moves


def raise_row(context: StepContext, *, slices: list[str], row: int) -> Outcome:
    """Raise floors and ceilings to row `row` of these slices; done when the controller has started to move.

    Fencing has just changed the set's annotation, so every run of this step is also a touch: once a second, at most
    TOUCHES times, because a refused controller may back off for a quarter of an hour.
    """
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live):
        return finding
    remember: Json = {"slice_rows": {**memory.slice_rows, **dict.fromkeys(slices, row)}, "box": None}
    box = memory.next_box(slices, row)
    again = PlannedStep("upgrades.raise_row", {"slices": slices, "row": row})
    if wrong := breach(context, live, next_box=box):
        return _repair(wrong, again)
    if missing := missing_sets(memory, live, slices, row):
        return still_missing(context, [memory.new], missing, again)
    assert live.parameter is not None
    if not same_box(standing_box(live.parameter), box):
        if moved := path_moved(context):
            return moved
        context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, box))
        touch(context, live.body, row=row)
        return Wait(1, f"the controller to move to row {row}", remember={**remember, "touches": {}})
    if not _off(live, _wanted(memory, slices, row)):
        return Done(result={"row": row, "slices": slices}, remember=remember)
    return _touched(context, memory, live, slices, row, remember)


def missing_sets(memory: Memory, live: LiveSet, slices: list[str], row: int) -> list[str]:
    """Sets of the new revision that somebody deleted: the controller does not make them again."""
    wanted = _wanted(memory, slices, row)
    return [f"{key[0]}/{key[2]}" for key in wanted if key[1] == memory.new and key not in live.children]


def _touched(
    context: StepContext, memory: Memory, live: LiveSet, slices: list[str], row: int, remember: Json
) -> Outcome:
    before = _wanted(memory, slices, row - 1)
    kept: Json = memory.data.get("touches") or {}
    count, at = int(kept.get("count", 0)), str(kept.get("at", ""))
    if not at or (context.now - datetime.fromisoformat(at)).total_seconds() >= 1:
        count, at = count + 1, context.now.isoformat()
    touches = {"count": count, "at": at}
    if count > TOUCHES and _off(live, before):  # on its way: reach_row knows when that takes too long
        return Done(
            result={"row": row, "slices": slices, "whole": False}, remember={**remember, "touches": {}}
        )
    if count > TOUCHES:
        return Hold(
            code="hold-not-released",
            sentence=f"Row {row} is allowed, but after {TOUCHES} touches the controller has not moved.",
            next_action="Look at the LeaderWorkerSet manager and its webhooks, then retry; or abort.",
            facts={"row": row, "counts": shown(live.counts())},
            remember={"touches": {}},
        )
    return Wait(1, f"the controller to move to row {row}", remember={**remember, "touches": touches})


def reach_row(context: StepContext, *, slices: list[str], row: int) -> Outcome:
    """A look: counts equal the row, every new group is ready and stays so for the plan's stable time, and no required
    gate is red."""
    memory, live = memory_of(context), look(context)
    if finding := foreign_write(context, live):
        return finding
    again = PlannedStep("upgrades.reach_row", {"slices": slices, "row": row})
    if wrong := breach(context, live) or restore_guards(context.kube):
        return _repair(wrong, again)
    if missing := missing_sets(memory, live, slices, row):
        return still_missing(context, [memory.new], missing, again)
    wanted = _wanted(memory, slices, row)
    off = _off(live, wanted)
    unready = [
        live.children[key].name
        for key, count in wanted.items()
        if key[1] == memory.new and count and not live.complete(key, count)
    ]
    if off or unready:
        return _not_there(context, row, wanted, live, bool(off), unready)
    return gated_row(context, live, slices, row, _stable(context, memory, live, slices, row))


def _off(live: LiveSet, wanted: dict[Key, int]) -> dict[Key, int]:
    """What stands where it is not what the row wants; a set that is gone has no groups."""
    counts = live.counts()
    return {key: counts.get(key, 0) for key, count in wanted.items() if counts.get(key, 0) != count}


def _wanted(memory: Memory, slices: list[str], row: int) -> dict[Key, int]:
    old, new = memory.counts_at(row)
    wanted: dict[Key, int] = {}
    for slice_name in slices:
        wanted.update({(slice_name, memory.new, role): count for role, count in new.items()})
        wanted.update({(slice_name, memory.old, role): count for role, count in old.items()})
    # A role that one side never had has no set on that side; a drained old side may already be deleted.
    start_old, _ = memory.counts_at(0)
    end_new = dict(zip(memory.roles, memory.rows[-1].new, strict=True))
    return {
        key: count
        for key, count in wanted.items()
        if count or (start_old[key[2]] if key[1] == memory.old else end_new[key[2]])
    }


def _not_there(
    context: StepContext, row: int, wanted: dict[Key, int], live: LiveSet, off: bool, unready: list[str]
) -> Outcome:
    memory, seen = memory_of(context), shown(live.counts())
    since, best = _progress(context, memory, live)
    remember: Json = {"progress": best, "calm": {}}
    stuck_after = _patience(memory, best)
    if (context.now - since).total_seconds() < stuck_after:
        what = f"row {row}: {'counts to move' if off else 'ready: ' + ', '.join(unready)}"
        return Wait(LOOK_EVERY, what, remember=remember)
    if off:
        return Hold(
            code="row-off-plan",
            sentence=f"Row {row} does not stand: the counts have not moved for {stuck_after:.0f} s.",
            next_action="Compare expected and seen; adopt the seen row, retry, or abort.",
            facts={"expected": shown(wanted), "seen": seen},
            remember={"progress": {}, "calm": {}},
        )
    return _not_ready(f"Row {row}: {', '.join(unready)} not ready for {stuck_after:.0f} s.", unready, seen)


def _not_ready(sentence: str, unready: list[str], seen: Json) -> Hold:
    return Hold(
        code="row-not-ready",
        sentence=sentence,
        next_action="Look at the pods of these groups, then retry; or abort: the old groups of this row still serve.",
        facts={"unready": unready, "seen": seen},
        remember={"progress": {}, "calm": {}},
    )


def _progress(context: StepContext, memory: Memory, live: LiveSet) -> tuple[datetime, Json]:
    """Since when this row has come no further, and what to remember of it.

    Further is: other counts, or more groups of the new revision ready than ever before in this step. Readiness that
    comes and goes is none, so that a flickering or crashing engine uses up the same patience as a dead one.
    """
    kept: Json = memory.data.get("progress") or {}
    known = kept if kept.get("step") == context.step_id else {}
    counts = shown(live.counts())
    ready = {"/".join(k): child.ready for k, child in live.children.items() if k[1] == memory.new}
    before: Json = known.get("ready", {}) if known.get("counts") == counts else {}
    best = {name: max(count, before.get(name, 0)) for name, count in ready.items()}
    if known and known["counts"] == counts and known["ready"] == best:
        return datetime.fromisoformat(known["since"]), known
    since = context.now
    return since, {"step": context.step_id, "counts": counts, "ready": best, "since": since.isoformat()}


def _patience(memory: Memory, progress: Json) -> float:
    """Seconds without progress before a person is told; whoever was ready once gets the stable time on top."""
    wanted = {name: progress["counts"][name] for name in progress["ready"]}
    was_ready = progress["ready"] == wanted
    return float(memory.data["stuck_after"]) + (float(memory.data["stable_for"]) if was_ready else 0.0)


def _stable(context: StepContext, memory: Memory, live: LiveSet, slices: list[str], row: int) -> Outcome:
    pods = read_pods(context.kube, memory.namespace, memory.name, memory.new)
    sign = sorted(pod_sign(pod) for pod in pods)
    calm_since, calm = same_since(memory.data.get("calm"), step=context.step_id, sign=sign, now=context.now)
    since, best = _progress(context, memory, live)
    stable_for, stood = float(memory.data["stable_for"]), (context.now - calm_since).total_seconds()
    if stood >= stable_for:
        return Done(
            result={"row": row, "slices": slices, "counts": shown(live.counts()), "pods": len(pods)},
            remember={
                "progress": {},
                "calm": {},
                "row": row,
                "row_stood": {"place": path_place(slices, row), "at": context.now.isoformat()},
            },
        )
    if (waited := (context.now - since).total_seconds()) >= _patience(memory, best):
        restless = sorted(pod["metadata"]["name"] for pod in pods if _turned_after(pod, since))
        sentence = f"Row {row} has not stayed ready for {stable_for:g} s within {waited:.0f} s"
        return _not_ready(f"{sentence}: pods restart or flicker.", restless, shown(live.counts()))
    return Wait(
        min(LOOK_EVERY, max(0.2, stable_for - stood)),
        f"row {row} to stay ready without restart or flicker for {stable_for:g} s",
        remember={"progress": best, "calm": calm},
    )


def _turned_after(pod: Json, since: datetime) -> bool:
    turned = ready_condition(pod).get("lastTransitionTime")
    return not turned or datetime.fromisoformat(turned) > since


def _repair(wrong: list[str], again: PlannedStep) -> Done:
    """Hold breached: a fenced step puts it back and tells a person; then this look is taken again."""
    return Done(
        result={"breached": wrong}, append=(PlannedStep("upgrades.repair_hold", {"wrong": wrong}), again)
    )


def repair_hold(context: StepContext, *, wrong: list[str]) -> Outcome:
    """Put the parameter back as remembered, then stop with the finding until a person retries or aborts."""
    memory, live = memory_of(context), look(context)
    if foreign := foreign_write(context, live):
        return foreign
    restore_guards(context.kube)
    if live.parameter is not None and wrong_parameter(context, live.parameter, [memory.box()]):
        context.kube.replace(CONFIG_MAPS, held_by_us(context, live.parameter, memory.box()))
    outside = memory.box().breaches(live.counts())
    told = memory.data.get("told_breach") == context.step_index
    if told and not outside:
        return Done(result={"repaired": wrong}, append=(PlannedStep("upgrades.prove_hold"),))
    return Hold(
        code="hold-breached",
        sentence=f"The hold was breached: {'; '.join(wrong + [o for o in outside if o not in wrong])}.",
        next_action="It has been put back. Find out who did it; then retry to go on, or abort.",
        facts={"wrong": wrong, "outside": outside},
        remember={"told_breach": context.step_index, "prove_above": context.fence, "guards_seen": {}},
    )
