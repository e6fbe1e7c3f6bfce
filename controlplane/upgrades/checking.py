"""Checking a plan against the live cluster: a Run of a worker, which reads and dry-runs and never writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane import events
from controlplane.approvals.services import mark_stale
from controlplane.audit.actor import worker
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, LockstepError, Refused
from controlplane.fleet.models import Revision
from controlplane.fleet.names import SET_NAME
from controlplane.fleet.target import templates_digest
from controlplane.holds.images import images_by_role
from controlplane.holds.live import LiveSet, read_live
from controlplane.kube.client import Kube
from controlplane.kube.errors import Conflict, Denied, Invalid, ObjectMissing
from controlplane.kube.resources import DISAGGREGATED_SETS, PODS
from controlplane.upgrades.bounds import Bounds, bounds_worse, plan_digest
from controlplane.upgrades.diff import roles_diff
from controlplane.upgrades.models import Plan
from controlplane.upgrades.path_exam import examine_path, path_base
from controlplane.upgrades.secrecy import redacted
from controlplane.upgrades.surroundings import read_surroundings
from controlplane.upgrades.verdict import judge, live_revision
from policy.rollout.draft import DraftRefused, apply_draft, parse_draft
from policy.rollout.refused import refused_changes

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The roles that a draft leads to, as the API server would store them, and as they stand at the end."""

    before: list[Json]
    after: list[Json]
    final: list[Json]
    written: list[Json]


def check_plan(*, kube: Kube | None, now: datetime, plan: int, version: int) -> Json:
    """Read the set, dry-run the write, derive rows, hazards, fit and bounds, and store them on the plan.

    A draft that can't be is stored as a problem with its code; the Run itself succeeds. Returns a short summary.
    """
    found = Plan.objects.select_related("workload__cluster", "requester").get(pk=plan)
    if found.version != version or kube is None:
        return {"skipped": "the plan was changed meanwhile"}
    try:
        live = _read(kube, found)
        proposal = _propose(kube, found, live)
    except LockstepError as error:
        return _store_problem(plan, version, error.as_problem(), now)
    surroundings = read_surroundings(kube, found, live)
    exam, seen = examine_path(
        kube,
        found,
        revision=live_revision(live),
        before=proposal.before,
        after=proposal.after,
        pods=surroundings.pods,
    )
    verdict = judge(found, live, proposal.before, proposal.after, proposal.written, surroundings, exam)
    pods = kube.list(PODS, found.workload.namespace, label_selector=f"{SET_NAME}={found.workload.name}").items
    content = _content(plan, proposal, seen)
    base = {
        "uid": found.workload.uid,
        "templates": templates_digest(redacted(proposal.before, plan_id=plan)),
        "pace": [role["spec"].get("rolloutStrategy") for role in proposal.before],
        "slices": live.slices,
        "placement": live.body["spec"].get("placementPolicy"),
        "revision": verdict.revision,
        "images": images_by_role(pods),
        "paths": [path_base(pool) for pool in seen["pools"]],
    }
    return _store(found, version, content, base, verdict.rows, verdict.hazards, verdict.bounds, now)


def _content(plan_id: int, proposal: Proposal, seen: Json) -> Json:
    before, after, final = (
        redacted(roles, plan_id=plan_id) for roles in (proposal.before, proposal.after, proposal.final)
    )
    diff = roles_diff(before, after)
    # What is written back after the fast profile: voters see it, and the digest covers it.
    diff["afterwards"] = roles_diff(after, final)["changes"]
    return {
        "roles_before": proposal.before,
        "roles_after": proposal.after,
        "roles_final": proposal.final,
        "diff": diff,
        "templates_digest": templates_digest(after),
        "path": seen,
    }


def mark_failed(*, problem: Json, plan: int, version: int) -> None:
    """The Run gave up (cluster away, worker lost): the plan says so and can be checked again."""
    Plan.objects.filter(pk=plan, version=version, state=Plan.State.CHECKING).update(
        state=Plan.State.FAILED, problem=problem
    )


def _read(kube: Kube, plan: Plan) -> LiveSet:
    try:
        live = read_live(kube, plan.workload.namespace, plan.workload.name)
    except ObjectMissing as error:
        raise Refused(
            "set-gone", "The set no longer exists.", next_action="Draft a plan for another set."
        ) from error
    if live.body["metadata"]["uid"] != plan.workload.uid:
        raise Refused("set-replaced", "A new set has this name.", next_action="Draft a plan for the new one.")
    return live


def _propose(kube: Kube, plan: Plan, live: LiveSet) -> Proposal:
    before = live.roles
    wanted, going_back = _wanted_roles(plan, before)
    rolled = _at_full_surge(wanted) if plan.options["profile"] == "fast" else wanted
    stored = _dry_run(kube, live, rolled)
    final = _dry_run(kube, live, wanted) if rolled is not wanted else stored
    if not going_back:
        refused = refused_changes(before, stored) or refused_changes(before, final)
        if refused:
            raise BadInput(
                "change-not-ours",
                f"Lockstep does not write {', '.join(r.path for r in refused)}.",
                next_action=refused[0].next_action,
                field="draft",
                refusals=[_refusal(r) for r in refused],
            )
    return Proposal(before=before, after=stored, final=final, written=rolled)


def _wanted_roles(plan: Plan, before: Sequence[Mapping[str, Any]]) -> tuple[list[Json], bool]:
    draft = plan.draft
    if "back_to" in draft:
        return _recorded_roles(plan, draft["back_to"]), True
    if "spec_roles" in draft:
        if not isinstance(draft["spec_roles"], list) or not draft["spec_roles"]:
            raise BadInput("draft-form", "spec_roles is the whole list of roles.", field="draft.spec_roles")
        return draft["spec_roles"], False
    try:
        return apply_draft(before, parse_draft({"roles": draft["roles"]})), False
    except DraftRefused as error:
        first = error.refusals[0]
        raise BadInput(
            first.code,
            str(error),
            next_action=first.next_action,
            field=f"draft.{first.path}",
            refusals=[_refusal(r) for r in error.refusals],
        ) from error


def _recorded_roles(plan: Plan, revision_id: Any) -> list[Json]:
    revision = Revision.objects.filter(pk=revision_id, workload=plan.workload).first()
    if revision is None or not revision.roles:
        raise BadInput(
            "revision-not-recorded",
            "There are no recorded roles under this revision of this set.",
            next_action="Choose a revision whose roles are recorded.",
            field="draft.back_to",
        )
    roles: list[Json] = revision.roles
    return roles


def _at_full_surge(roles: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The fast profile: the whole new side beside the old one, then one switch (digest 2.6, example 10)."""
    block = {"rollingUpdateConfiguration": {"maxSurge": "100%", "maxUnavailable": 0}, "type": "RollingUpdate"}
    return [
        {
            **role,
            "spec": {**role["spec"], "rolloutStrategy": {**role["spec"].get("rolloutStrategy", {}), **block}},
        }
        for role in roles
    ]


def _dry_run(kube: Kube, live: LiveSet, roles: Sequence[Mapping[str, Any]]) -> list[Json]:
    body = {**live.body, "spec": {**live.body["spec"], "roles": list(roles)}}
    try:
        stored = kube.replace(DISAGGREGATED_SETS, body, dry_run=True)
    except (Invalid, Denied) as error:
        raise BadInput(
            "dry-run-refused",
            f"The API server would refuse this: {error.message}",
            next_action="Mend the draft.",
            field="draft",
            **error.as_facts(),
        ) from error
    except Conflict as error:
        raise Refused(
            "set-moved", "The set changed during the check.", next_action="Check the plan again."
        ) from error
    found: list[Json] = stored["spec"]["roles"]
    return found


def _refusal(refusal: Any) -> Json:
    return {
        "code": refusal.code,
        "sentence": refusal.sentence,
        "next_action": refusal.next_action,
        "path": refusal.path,
    }


def _store_problem(plan_id: int, version: int, problem: Json, now: datetime) -> Json:
    with transaction.atomic():
        plan = Plan.objects.select_for_update(no_key=True).get(pk=plan_id)
        if plan.version != version:
            return {"skipped": "the plan was changed meanwhile"}
        plan.state, plan.problem, plan.checked_at = Plan.State.BLOCKED, problem, now
        plan.content = plan.rows = plan.bounds = None
        plan.hazards, plan.digest = [], ""
        _finish_check(plan, problem["detail"])
    return {"state": plan.state, "code": problem["code"]}


def _store(
    checked: Plan,
    version: int,
    content: Json,
    base: Json,
    rows: Json,
    hazards: list[Json],
    bounds: Bounds,
    now: datetime,
) -> Json:
    with transaction.atomic():
        plan = Plan.objects.select_for_update(no_key=True).get(pk=checked.pk)
        if plan.version != version:
            return {"skipped": "the plan was changed meanwhile"}
        why_void = _why_votes_lapse(plan, content, base, bounds)
        plan.rows, plan.hazards, plan.checked_at = rows, hazards, now
        plan.content = content
        if why_void:
            plan.base, plan.bounds = base, bounds.as_json()
            plan.digest = plan_digest(content, base, plan.bounds)
        blocking = [h["id"] for h in hazards if h["severity"] == "block"]
        plan.state = Plan.State.BLOCKED if blocking else Plan.State.READY
        plan.problem = {}
        plan.acknowledged = {k: v for k, v in plan.acknowledged.items() if k in {h["id"] for h in hazards}}
        _finish_check(plan, why_void)
    return {"state": plan.state, "digest": plan.digest, "blocking": blocking}


def _why_votes_lapse(plan: Plan, content: Json, base: Json, bounds: Bounds) -> str:
    """Empty where the digest that people may have approved still says what will happen (DESIGN 4.3)."""
    if not plan.digest or plan.base is None or plan.bounds is None:
        return "first check"
    if plan_digest(content, base, plan.bounds) != plan.digest:
        return "content or base changed"
    worse = bounds_worse(plan.bounds, bounds)
    return f"bounds got worse: {'; '.join(worse)}" if worse else ""


def _finish_check(plan: Plan, why_void: str) -> None:
    if why_void:
        mark_stale(
            subject_kind="upgrades.plan", subject_id=str(plan.pk), reason=why_void, actor=worker("check")
        )
    plan.version += 1
    plan.save()
    record_event(
        actor=worker("check", on_behalf_of=plan.requester.username),
        action="plan.check",
        target_kind="plan",
        target_id=str(plan.pk),
        after={"state": plan.state, "digest": plan.digest, "hazards": [h["id"] for h in plan.hazards]},
        code=plan.problem.get("code", ""),
    )
    events.publish(
        event="plan-changed", object_kind="plan", object_id=str(plan.pk), data={"state": plan.state}
    )
