"""The steps of a restore: the parts (controlplane/recovery/parts) over the operation's memory, and what is written
down about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controlplane.audit.actor import worker
from controlplane.audit.redaction import plain
from controlplane.audit.services import record_event
from controlplane.errors import Refused
from controlplane.holds.claimant import writer_of
from controlplane.holds.fencing import fence_set
from controlplane.holds.guards import shipped_guards
from controlplane.holds.writer import SetLost
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import (
    Done,
    Finish,
    Hold,
    Outcome,
    PlannedStep,
    StepContext,
    StepFunction,
)
from controlplane.operations.installation import check_installation
from controlplane.operations.models import Step
from controlplane.recovery.capturing import order_as_json, order_now, refuse_unreadable
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.ordering import restore_steps
from controlplane.recovery.parts import workload
from controlplane.recovery.parts.registry import PARTS as PARTS
from controlplane.recovery.parts.registry import Part
from controlplane.recovery.parts.task import Task, may_touch
from controlplane.recovery.serializers import parts_of
from policy.canonical import digest
from policy.rollout.wording import capitalised

Json = dict[str, Any]


def task_of(context: StepContext) -> Task:
    """This claim as the task of a part."""
    memory = context.operation.memory
    return Task(
        writer=writer_of(context),
        document=Combination.objects.get(pk=memory["combination"]).document,
        memory=memory,
        now=context.now,
        since=context.first_claimed_at,
        step=str(context.step_id),
        stable_for=float(memory["stable_for"]),
        stuck_after=float(memory["stuck_after"]),
        guards=shipped_guards(),
    )


def fence_world(context: StepContext) -> Hold | None:
    """Raise this claim's number in the cluster, and touch the set unless its hold is not the one that was written."""
    if finding := check_installation(context.kube, context.cluster):
        return finding
    writer, memory = writer_of(context), context.operation.memory
    return fence_set(writer, may_touch=lambda parameter: may_touch(writer, memory, parameter))


def step_of(part: Part) -> StepFunction:
    """The part as a step: a lost set is a finding, an outcome says which parts are done, and the last step of a part
    marks it."""

    def step(context: StepContext, *, ends_part: int | None = None, **args: Any) -> Outcome:
        try:
            outcome = part(task_of(context), **args)
        except SetLost as lost:
            outcome = lost.finding
            if context.operation.phase == "aborting":
                return Done(result={"reason": lost.finding.sentence})
        if isinstance(outcome, Hold):
            parts = parts_of(context.operation.memory)
            return replace(outcome, facts={**outcome.facts, "parts": parts}) if parts else outcome
        if isinstance(outcome, Done) and ends_part is not None:
            return _ending(context, outcome, ends_part)
        return outcome

    return step


def _ending(context: StepContext, outcome: Done, part: int) -> Done:
    """A part ends with its last step; where that step puts in others, the last of those ends it."""
    if outcome.append:
        *before, last = outcome.append
        marked = PlannedStep(last.name, {**last.args, "ends_part": part})
        return replace(outcome, append=(*before, marked))
    done = sorted({*(context.operation.memory.get("parts_done") or ()), part})
    return replace(outcome, remember={**outcome.remember, "parts_done": done})


def check(context: StepContext) -> Outcome:
    """A look: what differs now, in which order it is put back, and whether everything that this takes was agreed to.

    The parts go in behind this step. Every retry looks anew."""
    memory = context.operation.memory
    found = Combination.objects.get(pk=memory["combination"])
    try:
        order = order_now(context.kube, found, memory["options"])
    except Refused as refused:
        return refuse_unreadable(refused)
    shown = order_as_json(order)
    if order.refusals:
        first = order.refusals[0]
        return Hold(
            code=first.code,
            sentence=f"{'; '.join(capitalised(each.sentence) for each in order.refusals)}.",
            next_action=f"{capitalised(first.next_action)}; then retry, or abort and restore"
            " again with what was agreed to.",
            facts={"order": shown},
        )
    for part in order.parts:
        if part.name == "workload" and (stopped := workload.in_front(task_of(context), way=part.way)):
            return replace(stopped, facts={**stopped.facts, "order": shown})
    return Done(result=shown, remember={"order": shown}, append=restore_steps(order.parts))


def freeze(context: StepContext) -> Outcome:
    """Stop at the counts that stand; where no later step lets the hold go, one is put in."""
    outcome = step_of(workload.freeze)(context)
    if not isinstance(outcome, Done):
        return outcome
    to_come = Step.objects.filter(operation_id=context.operation.id, state=Step.State.PENDING)
    lets_go = ["recovery.release", "recovery.check", "recovery.plan_abort"]
    if to_come.filter(name__in=lets_go).exists():
        return outcome
    return replace(outcome, append=(*outcome.append, PlannedStep("recovery.release")))


def record(context: StepContext) -> Outcome:
    """Close the restore's document with what was put back and what runs now. Database only."""
    memory = context.operation.memory
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        _close(context, memory, "succeeded")
    return Done()


def finish(context: StepContext, *, outcome: str, reason: str = "") -> Outcome:
    """The end. The automation of the set stays paused until a person resumes it."""
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        _close(context, context.operation.memory, outcome)
    return Finish(outcome, {"reason": reason} if reason else {})


def plan_abort(context: StepContext) -> Outcome:
    """Stop here: nothing is taken back but the drain of traffic. The hold is let go, so the set goes on to what its
    roles say now."""
    memory = context.operation.memory
    parts = parts_of(memory)
    undone = [part["name"] for part in parts if not part["done"]]
    said = f"Stopped with {', '.join(undone) or 'nothing'} not put back; what was put back stays."
    drained = [PlannedStep("recovery.return_traffic")] if memory.get("drained") else []
    return Done(
        result={"parts": parts, "stands": said},
        append=(
            PlannedStep("recovery.release"),
            PlannedStep("holds.give_back_scalers"),
            *drained,
            PlannedStep("recovery.finish", {"outcome": "aborted", "reason": said}),
        ),
    )


def _close(context: StepContext, memory: Json, outcome: str) -> None:
    found = Restore.objects.select_for_update(no_key=True).filter(operation_id=context.operation.id).first()
    if found is None or found.document.get("outcome") == outcome:
        return
    found.document = {
        "version": 1,
        "outcome": outcome,
        "combination": {"id": found.combination_id, "digest": context.operation.digest},
        "parts": parts_of(memory),
        "estimate": (memory.get("order") or {}).get("estimate"),
        "outage": (memory.get("order") or {}).get("outage"),
        "bits": memory.get("bits") or {},
        "diff": memory.get("diff_after") or [],
        "requests": memory.get("counted") or {},
    }
    found.digest, found.closed_at = digest(plain(found.document)), context.now
    found.save(update_fields=["document", "digest", "closed_at"])
    record_event(
        actor=worker("restore"),
        action="restore.close",
        target_kind="restore",
        target_id=str(found.pk),
        after={"outcome": outcome, "digest": found.digest, "bits": memory.get("bits") or {}},
    )
