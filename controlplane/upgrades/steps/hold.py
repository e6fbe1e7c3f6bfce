"""Standing at a hold: what must be green, who must agree, and what happens when patience ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from controlplane.approvals.models import ChangeRequest
from controlplane.approvals.services import approved_request, mark_stale, open_request
from controlplane.audit.actor import worker
from controlplane.holds.guards import restore_guards
from controlplane.holds.live import LiveSet
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import Abort, Done, Hold, Outcome, PlannedStep, StepContext, Wait
from controlplane.queue import WAKE
from controlplane.upgrades.steplist import path_at_hold, path_place
from controlplane.upgrades.steps.covered import cover_of, names_of, until_counted, until_steady
from controlplane.upgrades.steps.forward import altered, still_missing
from controlplane.upgrades.steps.gates import Gated, judge_metric_gates, red_hold
from controlplane.upgrades.steps.memory import breach, foreign_write, look, memory_of, plan_of
from controlplane.upgrades.steps.path import path_age
from controlplane.upgrades.steps.path_base import path_moved
from controlplane.upgrades.steps.references import wrong_references
from controlplane.upgrades.steps.rows import missing_sets
from controlplane.upgrades.steps.standing import (
    Standing,
    attempt_of,
    promoted_past,
    same_attempt,
    standing_at,
    still_promoted,
)
from policy.approval.lifecycle import step_expiry
from policy.approval.quorum import Slot
from policy.canonical import digest

Json = dict[str, Any]

LOOK_EVERY = 5.0
PATH_EVIDENCE_LASTS = 1800.0  # seconds; what was seen of the path longer ago is looked at again
KIND = "operations.hold"


def hold(context: StepContext, *, slices: list[str], row: int, rules: list[str]) -> Outcome:
    """Pass when the row still stands whole, the quorum is there, and (where the plan asks) a person promoted.

    A hold has a maximum age and a chosen end: abort or keep, never promote.
    """
    live, stands = look(context), standing_at(context, slices=slices, row=row)
    key, until = stands.key, stands.until
    if finding := foreign_write(context, live) or altered(live, memory_of(context).new):
        return finding
    again = PlannedStep("upgrades.hold", {"slices": slices, "row": row, "rules": rules})
    remember = stands.remember
    once_more = {**remember, **same_attempt(context, key)}
    if missing := missing_sets(memory_of(context), live, slices, row):
        return with_memory(still_missing(context, [memory_of(context).new], missing, again), **once_more)
    if wrong := breach(context, live) or restore_guards(context.kube):
        repair = PlannedStep("upgrades.repair_hold", {"wrong": wrong})
        return Done(result={"breached": wrong}, append=(repair, again), remember=once_more)
    if stands.is_over(context.now):
        return Abort(stands.reason)
    if red := _red(context, live, slices, row):
        return Wait(
            LOOK_EVERY,
            f"row {row} to be whole again: {red}",
            until=until,
            then=stands.then,
            person=True,
            remember=remember,
        )
    if outdated := _path_again(context, stands, slices, row):
        steps = (path_at_hold(slices, row), again)
        if isinstance(outdated, Wait):
            return outdated
        return Done(outdated, append=steps, remember={**once_more, **still_promoted(context, key)})
    gated = judge_metric_gates(context, live, slices=slices, row=row, keep=True)
    remember |= gated.remember
    stopped = _stopped_by(gated, row, until, remember)
    return stopped or _asked(context, key, row, rules, until, remember)


def _path_again(context: StepContext, stands: Standing, slices: list[str], row: int) -> Json | Wait | None:
    """Why the path is looked at again before anybody is asked: what was seen is old, rests on a reference that is none
    any more, or is not of the groups that serve now. To wait for groups that are not there or do not stand yet; a group
    that never does is waited for as long as the hold lasts."""
    at = path_place(slices, row)
    seen = path_age(context, at)
    if seen is None:
        return None
    if seen > PATH_EVIDENCE_LASTS:
        return {"path": "seen too long ago"}
    if wrong := wrong_references(context.operation.memory["path_evidence"][at]["series"], "new"):
        return {"path": wrong[0][0]}
    cover = cover_of(context, at, slices, row)
    wait = None if cover is None else until_counted(cover) or until_steady(context, cover.unseen)
    if wait is not None:
        return replace(
            wait, until=stands.until, then=stands.then, remember={**stands.remember, **wait.remember}
        )
    return {"path": f"not seen by probes: {names_of(cover.unseen)}"} if cover and cover.unseen else None


def with_memory(outcome: Outcome, **more: Any) -> Outcome:
    """An outcome that also remembers this; an abort or an end remembers nothing."""
    if isinstance(outcome, Done | Wait | Hold):
        return replace(outcome, remember={**outcome.remember, **more})
    return outcome


def _stopped_by(gated: Gated, row: int, until: datetime | None, remember: Json) -> Outcome | None:
    """A red gate holds; one that says nothing keeps the hold standing until traffic or probes bring samples."""
    if gated.verdict == "red":
        return red_hold(gated, **remember)
    if gated.verdict != "not-evaluable":
        return None
    return Wait(
        LOOK_EVERY,
        f"a verdict of the gates at row {row}: {gated.why}",
        until=until,
        then="the operation aborts" if until else "it keeps standing here",
        remember=remember,
    )


def _asked(
    context: StepContext, key: str, row: int, rules: list[str], until: datetime | None, remember: Json
) -> Outcome:
    options = context.operation.memory["options"]
    then = "the operation aborts" if until else "it keeps standing here"
    # In this order: a last vote that comes between the two looks is seen by the second.
    latest = _latest(context, key) if context.operation.memory["hold_slots"] else None
    if context.operation.memory["hold_slots"] and not _approved(context, key):
        gates = remember.get("gates") or context.operation.memory.get("gates") or {}
        request = latest or _open(context, key, row, rules, until, gates)
        if request.state == ChangeRequest.State.REJECTED:
            return Hold(
                code="step-rejected",
                sentence=f"Going past row {row} was rejected in request {request.pk}.",
                next_action="Abort, or retry to ask again.",
                facts={"request": request.pk},
                remember=remember,
            )
        return Wait(
            LOOK_EVERY,
            f"approval {request.pk} of row {row} ({', '.join(rules)})",
            who="approvers",
            until=until,
            then=then,
            person=True,
            remember=remember,
        )
    if options["promote"] == "manual" and not promoted_past(context, key):
        return Wait(
            LOOK_EVERY,
            f"promote past row {row} ({', '.join(rules)})",
            who="operators",
            until=until,
            then=then,
            person=True,
            hold_key=key,
            remember=remember,
        )
    if moved := path_moved(context):
        return replace(moved, remember=remember)
    return Done(result={"row": row, "rules": rules}, remember={**remember, "hold_since": {}, "expires": {}})


def _red(context: StepContext, live: LiveSet, slices: list[str], row: int) -> str:
    memory = memory_of(context)
    old, new = memory.counts_at(row)
    for slice_name in slices:
        for label, wanted in ((memory.old, old), (memory.new, new)):
            for role, count in wanted.items():
                ready = live.ready((slice_name, label, role))
                if ready < count:
                    return f"{role} of {label} has {ready} of {count} groups ready"
    return ""


def hold_digest(context: StepContext, key: str) -> str:
    """What a step approval is about: this plan, this operation, this hold, this attempt."""
    return digest(
        {
            "plan": plan_of(context).digest,
            "operation": context.operation.id,
            "hold": key,
            "attempt": attempt_of(context, key),
        }
    )


def _approved(context: StepContext, key: str) -> bool:
    found = approved_request(
        subject_kind=KIND,
        subject_id=str(context.operation.id),
        step=key,
        attempt=attempt_of(context, key),
        digest=hold_digest(context, key),
    )
    return found is not None


def _latest(context: StepContext, key: str) -> ChangeRequest | None:
    """The open or rejected request of this hold and attempt: made once, found again after a crash."""
    return (
        ChangeRequest.objects.filter(
            subject_kind=KIND,
            subject_id=str(context.operation.id),
            step=key,
            attempt=attempt_of(context, key),
            state__in=["open", "rejected"],
        )
        .order_by("-id")
        .first()
    )


def _open(
    context: StepContext, key: str, row: int, rules: list[str], until: datetime | None, gates: Json
) -> ChangeRequest:
    plan, memory = plan_of(context), memory_of(context)
    old, new = memory.counts_at(row)
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)  # no request after an abort
        close_requests(context, "The operation asks about another hold or attempt.")
        return open_request(
            subject_kind=KIND,
            subject_id=str(context.operation.id),
            step=key,
            attempt=attempt_of(context, key),
            digest=hold_digest(context, key),
            title=f"Past row {row} of {context.operation.title}",
            reason=plan.reason,
            evidence={
                "row": row,
                "rules": rules,
                "old": old,
                "new": new,
                "plan": plan.pk,
                "gates": {name: gates[name] for name in ("at", "verdict", "sentence") if name in gates},
            },
            risk=(plan.bounds or {})["risk"],
            slots=[Slot(**slot) for slot in context.operation.memory["hold_slots"]],
            cluster=context.cluster.name,
            namespace=context.operation.namespace,
            requester=plan.requester,
            excluded=context.operation.memory["excluded"],
            expires_at=step_expiry(context.now, hold_ends_at=until or context.now + timedelta(days=1)),
            bell={"task": WAKE, "argument": str(context.operation.id)},
            actor=worker("upgrade", on_behalf_of=plan.requester.username),
        )


def close_requests(context: StepContext, reason: str) -> None:
    """Votes that are still collected for a hold or attempt which is over count for nothing any more: say so."""
    mine = ChangeRequest.objects.filter(subject_kind=KIND, subject_id=str(context.operation.id))
    for step in set(mine.filter(state=ChangeRequest.State.OPEN).values_list("step", flat=True)):
        mark_stale(
            subject_kind=KIND,
            subject_id=str(context.operation.id),
            step=step,
            reason=reason,
            actor=worker("upgrade"),
        )
