"""Proof on the path that requests take: probes and parity of one revision, through every pool that selects the set.

The requests are sent by Runs; this step finds the pools live, asks for the series once per attempt, and reads what
came of them. What was approved as provable must be proved; a pool of which nobody had said how it is reached is not
examined, and the record says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import Abort, Done, Hold, Outcome, StepContext, Wait
from controlplane.operations.looks import ask_series, close_abandoned
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.upgrades.steps.gate_evidence import GREEN, RED, numbers_of
from controlplane.upgrades.steps.memory import Memory, memory_of, plan_of
from controlplane.upgrades.steps.path_base import path_moved
from controlplane.upgrades.steps.references import wrong_references
from controlplane.upgrades.steps.standing import lapsed, standing_at

Json = dict[str, Any]

LOOK_EVERY = 1.0


def prove_path(
    context: StepContext, *, side: str, at: str, slices: list[str] | None = None, row: int | None = None
) -> Outcome:
    """Have one revision (`side`: old or new) probed, and compare its answers with the reference.

    Green goes on. Red holds the operation; so does a series that says nothing, because nothing green was seen. With
    `slices` and `row` this is a part of a hold, whose age runs from here, and whose votes and promote lapse with any
    finding. On the way back a red path is told once: resume ends the abort with the finding on record.
    """
    if slices is None or row is None:
        return _prove(context, side, at)
    stands = standing_at(context, slices=slices, row=row)
    if stands.is_over(context.now):
        return Abort(stands.reason)
    outcome = _prove(context, side, at)
    if isinstance(outcome, Hold):
        return replace(
            outcome, remember={**outcome.remember, **stands.remember, **lapsed(context, stands.key)}
        )
    if isinstance(outcome, Done | Wait):
        return replace(outcome, remember={**outcome.remember, **stands.remember})
    return outcome


def _prove(context: StepContext, side: str, at: str) -> Outcome:
    memory = memory_of(context)
    revision = memory.new if side == "new" else memory.old
    asked = _asked(context)
    if asked is None:
        return _ask(context, memory, revision, at)
    series = list(ProbeSeries.objects.filter(pk__in=asked).select_related("pool").order_by("pk"))
    running = [each for each in series if each.state == ProbeSeries.State.RUNNING]
    if running:
        close_abandoned(running)
        names = ", ".join(f"{each.kind} of {revision} through {each.pool.name}" for each in running)
        return Wait(LOOK_EVERY, f"the path to be seen: {names}")
    evidence = [_evidence(each, side) for each in series]
    evidence += [_lost(each, revision) for each in asked if each not in {one.pk for one in series}]
    bad = next((each for each in evidence if each["verdict"] not in GREEN), None)
    if bad is None or _told(context):
        return _proved(context, at, evidence, "green" if bad is None else bad["verdict"])
    return _not_green(context, bad, evidence)


def path_age(context: StepContext, at: str) -> float | None:
    """Seconds since the path was proved at this place; None where it was not examined there."""
    kept = (context.operation.memory.get("path_evidence") or {}).get(at)
    if not kept or not kept["series"]:
        return None
    return (context.now - datetime.fromisoformat(kept["at"])).total_seconds()


def _asked(context: StepContext) -> list[int] | None:
    kept = context.operation.memory.get("path_asked") or {}
    mine = (kept.get("step"), kept.get("attempt")) == (context.step_id, context.attempt)
    return [int(each) for each in kept["series"]] if mine else None


def _ask(context: StepContext, memory: Memory, revision: str, at: str) -> Outcome:
    if context.operation.phase != "aborting" and (moved := path_moved(context)):
        return moved
    approved = (plan_of(context).base or {}).get("paths") or []
    if not approved:
        return _proved(context, at, [], "not examined: no InferencePool selects the set's pods")
    must = {each["uid"]: each["probes"] for each in approved if each.get("probes")}
    if not must:
        names = ", ".join(each["name"] for each in approved)
        return _proved(context, at, [], f"not examined: nobody has said how {names} is reached")
    rows = {row.uid: row for row in Pool.objects.present().filter(cluster=context.cluster, uid__in=must)}
    if gone := [each["name"] for each in approved if each["uid"] in must and each["uid"] not in rows]:
        return _cannot_prove(f"The pool {gone[0]} is gone, so {revision} cannot be proved through it.")
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        series = [
            ask_series(
                pool=pool,
                kind=kind,
                subject_kind="operation",
                subject_id=str(context.operation.id),
                key=f"{at}-step-{context.step_id}-attempt-{context.attempt}",
                revision=revision,
                step=(context.step_id, context.attempt),
            ).pk
            for pool in rows.values()
            for kind in must[pool.uid]["kinds"]
        ]
    asked: Json = {"step": context.step_id, "attempt": context.attempt, "series": series}
    return Wait(LOOK_EVERY, f"the path of {revision} to be probed", remember={"path_asked": asked})


def _evidence(series: ProbeSeries, side: str) -> Json:
    verdict = series.verdict or series.problem
    golden = series.verdict.get("golden")
    found = {
        "series": series.pk,
        "kind": series.kind,
        "pool": series.pool.name,
        "revision": series.revision,
        "verdict": series.verdict.get("verdict") or "failed",
        "sentence": verdict.get("sentence") or verdict.get("detail") or "",
        "next_action": verdict.get("next_action") or "",
        "numbers": numbers_of(series.kind, series.verdict),
        "findings": [
            {"kind": each["kind"], "id": each["id"], "parts": each["parts"], "sentence": each["sentence"]}
            for each in series.verdict.get("findings") or ()
        ],
        **({"golden": {key: golden[key] for key in ("id", "revision")}} if golden else {}),
    }
    if found["verdict"] in GREEN and (wrong := wrong_references([found], side)):
        found |= {"verdict": "not-evaluable", "sentence": wrong[0][0], "next_action": wrong[0][1]}
    return found


def _lost(pk: int, revision: str) -> Json:
    """A series that was asked for and is not there any more: nothing was seen by it."""
    return {
        "series": pk,
        "kind": "series",
        "pool": "a pool",
        "revision": revision,
        "verdict": "failed",
        "sentence": f"number {pk} was asked for and is gone, so nothing is known of what it saw.",
        "next_action": "",
        "numbers": {},
        "findings": [],
    }


def _told(context: StepContext) -> bool:
    """On the way back only, and only for this attempt: a red path goes forward over nobody's resume."""
    told = context.operation.memory.get("told_path")
    return context.operation.phase == "aborting" and told == [context.step_id, context.attempt]


def _proved(context: StepContext, at: str, evidence: Sequence[Json], result: str) -> Done:
    kept = dict(context.operation.memory.get("path_evidence") or {})
    kept[at] = {"at": context.now.isoformat(), "result": result, "series": list(evidence)}
    return Done(
        result={"path": result}, remember={"path_evidence": kept, "path_asked": {}, "told_path": None}
    )


def _cannot_prove(sentence: str) -> Hold:
    return Hold("path-not-proved", sentence, "Put it back, then retry; or abort.")


def _not_green(context: StepContext, bad: Json, evidence: Sequence[Json]) -> Hold:
    back = context.operation.phase == "aborting"
    red = bad["verdict"] in RED
    way_out = "retry to probe again" + (
        "; resume ends the abort with this on record" if back else ", or abort"
    )
    return Hold(
        code="path-red" if red else "path-not-proved",
        sentence=f"{bad['kind'].capitalize()} of {bad['revision']} through {bad['pool']}: {bad['sentence']}",
        next_action=f"{bad['next_action'].rstrip('.')}; then {way_out}."
        if bad["next_action"]
        else f"{way_out[0].upper()}{way_out[1:]}.",
        facts={"series": list(evidence)},
        remember={"told_path": [context.step_id, context.attempt]},
    )
