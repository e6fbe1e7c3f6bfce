"""Writes on plans: draft, edit, check again, acknowledge, ask for approval, start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane import events
from controlplane.access.etags import check_version
from controlplane.access.models import User
from controlplane.access.permissions import require
from controlplane.approvals.models import ChangeRequest
from controlplane.approvals.services import approved_request, mark_stale, open_request
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, NotFound, Refused
from controlplane.fleet.models import Workload
from controlplane.operations.clock import database_now
from controlplane.operations.creation import NewOperation, Target, create_operation
from controlplane.operations.installation import this_installation
from controlplane.operations.models import FINISHED, Operation
from controlplane.operations.pauses import automation_paused
from controlplane.operations.runs import create_run
from controlplane.upgrades.models import Plan
from controlplane.upgrades.options import read_options
from controlplane.upgrades.records import open_record
from controlplane.upgrades.starting import memory_for
from controlplane.upgrades.steplist import upgrade_steps
from policy.approval.eligibility import TokenOrigin, exclusions
from policy.approval.lifecycle import request_expiry
from policy.approval.quorum import slots_for
from policy.canonical import MARK

Json = dict[str, Any]
SUBJECT = "upgrades.plan"
CHECK = "upgrades.check_plan"


def draft_plan(
    *,
    workload_id: int,
    title: str,
    reason: str,
    draft: Mapping[str, Any],
    options: Mapping[str, Any],
    requester: User,
    actor: Actor,
    origin: TokenOrigin | None = None,
) -> Plan:
    """Make a plan and have a worker check it against the live cluster. Shape errors are BadInput at once."""
    read = read_options(options, stable_for=settings.LOCKSTEP_STABLE_FOR)
    with transaction.atomic():
        workload = Workload.objects.select_related("cluster").filter(pk=workload_id, gone_at=None).first()
        if workload is None:
            raise NotFound("workload-unknown", "There is no such workload.", field="workload")
        require(requester, "plan.edit", cluster=workload.cluster.name, namespace=workload.namespace)
        plan = Plan.objects.create(
            workload=workload,
            title=title or f"Upgrade {workload.namespace}/{workload.name}",
            reason=reason,
            draft=read_draft(draft),
            options=read,
            requester=requester,
            answerable=_people_behind(requester, origin),
            created_at=database_now(),
        )
        _send_to_check(plan, actor, "plan.draft", before=None)
    return plan


def edit_plan(
    *,
    plan_id: int,
    version: int,
    changes: Mapping[str, Any],
    editor: User,
    actor: Actor,
    origin: TokenOrigin | None = None,
) -> Plan:
    """Change title, reason, draft or options. Votes on the old digest are void, and the editor may not vote."""
    with transaction.atomic():
        plan = lock_plan(plan_id, version)
        require(editor, "plan.edit", cluster=plan.workload.cluster.name, namespace=plan.workload.namespace)
        _refuse_while_running(plan)
        before = {"version": plan.version, "digest": plan.digest}
        plan.title = changes.get("title", plan.title)
        plan.reason = changes.get("reason", plan.reason)
        if "draft" in changes:
            plan.draft = read_draft(changes["draft"])
        if "options" in changes:
            plan.options = read_options(changes["options"], stable_for=settings.LOCKSTEP_STABLE_FOR)
        plan.acknowledged, plan.digest = {}, ""
        plan.editors.add(editor)
        plan.answerable = {**_people_behind(editor, origin), **plan.answerable}
        _void(plan, f"The plan was changed by {editor.username}.", actor)
        _send_to_check(plan, actor, "plan.edit", before=before)
    return plan


def recheck_plan(*, plan_id: int, version: int, user: User, actor: Actor) -> Plan:
    """Check against the live cluster again. Approvals stay as long as content and base are the same and the bounds
    are not worse than approved; the check itself decides that."""
    with transaction.atomic():
        plan = lock_plan(plan_id, version)
        require(user, "plan.edit", cluster=plan.workload.cluster.name, namespace=plan.workload.namespace)
        _refuse_while_running(plan)
        _send_to_check(plan, actor, "plan.recheck", before={"version": plan.version})
    return plan


def acknowledge_hazard(*, plan_id: int, version: int, hazard: str, user: User, actor: Actor) -> Plan:
    """The requester says that a warning was read. Nobody else can, and a blocking hazard can't be acknowledged."""
    with transaction.atomic():
        plan = lock_plan(plan_id, version)
        require(user, "plan.edit", cluster=plan.workload.cluster.name, namespace=plan.workload.namespace)
        if plan.state not in {Plan.State.READY, Plan.State.BLOCKED}:
            raise Refused(
                "plan-not-ready", f"The plan is {plan.state}.", next_action="Wait for the check to end."
            )
        found = next((h for h in plan.hazards if h["id"] == hazard), None)
        if found is None:
            raise BadInput("hazard-unknown", f"This plan has no hazard {hazard}.", field="hazard")
        if found["severity"] == "block":
            raise Refused(
                "hazard-blocks", "A blocking hazard can't be acknowledged.", next_action=found["next_action"]
            )
        if user.pk != plan.requester.pk:
            raise Refused(
                "not-the-requester",
                "Only the requester acknowledges hazards of a plan.",
                next_action=f"Ask {plan.requester.username}.",
            )
        plan.acknowledged = {**plan.acknowledged, hazard: user.username}
        _changed(plan, actor, "plan.acknowledge", before=None, after={"hazard": hazard})
    return plan


def request_approval(
    *, plan_id: int, version: int, user: User, origin: TokenOrigin | None, actor: Actor
) -> ChangeRequest:
    """Ask for the votes that the plan's risk class needs. A class without votes is approved at once, and logged."""
    with transaction.atomic():
        plan = lock_plan(plan_id, version)
        cluster, namespace = plan.workload.cluster.name, plan.workload.namespace
        require(user, "plan.request", cluster=cluster, namespace=namespace)
        bounds = _ready_bounds(plan)
        now = database_now()
        request = open_request(
            subject_kind=SUBJECT,
            subject_id=str(plan.pk),
            digest=plan.digest,
            title=plan.title,
            reason=plan.reason,
            evidence={
                "diff": (plan.content or {})["diff"],
                "rows": plan.rows,
                "hazards": plan.hazards,
                "acknowledged": plan.acknowledged,
                "bounds": bounds,
                "base": plan.base,
            },
            risk=bounds["risk"],
            slots=slots_for(bounds["risk"]),
            cluster=cluster,
            namespace=namespace,
            requester=user,
            excluded=excluded_voters(plan, user, origin),
            expires_at=request_expiry(now),
            actor=actor,
        )
        _changed(
            plan, actor, "plan.request", before=None, after={"request": request.pk, "digest": plan.digest}
        )
    return request


def start_upgrade(
    *, plan_id: int, version: int, user: User, origin: TokenOrigin | None, actor: Actor
) -> Operation:
    """Create the operation of an approved plan and take its set. The worker looks at the live base before any write."""
    with transaction.atomic():
        plan = lock_plan(plan_id, version)
        cluster = plan.workload.cluster
        require(user, "operation.start", cluster=cluster.name, namespace=plan.workload.namespace)
        bounds = _ready_bounds(plan)
        _refuse_cluster(cluster.writes, cluster.writes_reason)
        _refuse_unapproved(plan, bounds["risk"])
        _refuse_paused(plan)
        memory = memory_for(
            plan,
            installation=str(this_installation().pk),
            hold_slots=slots_for(bounds["risk"]) if plan.options["hold_votes"] else [],
            excluded=excluded_voters(plan, user, origin),
        )
        operation = create_operation(
            new=NewOperation(
                kind="upgrade",
                subject_id=str(plan.pk),
                digest=plan.digest,
                cluster=cluster,
                namespace=plan.workload.namespace,
                title=plan.title,
                reason=plan.reason,
                targets=[Target("set", plan.workload.uid)],
                steps=upgrade_steps(memory),
                abort_step="upgrades.plan_abort",
                stop_step="upgrades.freeze",
                adopt_step="upgrades.adopt",
                memory=memory,
            ),
            started_by=user,
            actor=actor,
        )
        open_record(operation=operation, plan=plan, now=database_now())
        _changed(plan, actor, "plan.start", before=None, after={"operation": operation.pk})
    return operation


def _refuse_paused(plan: Plan) -> None:
    """After a restore nothing starts before a person has said that the reason for it is gone."""
    workload = plan.workload
    if why := automation_paused(cluster=workload.cluster, namespace=workload.namespace, name=workload.name):
        raise Refused(
            "automation-paused",
            f"Changes of {workload.namespace}/{workload.name} are {why}",
            next_action="Resume automation of the set, then start.",
        )


def lock_plan(plan_id: int, version: int) -> Plan:
    """The plan's row, locked. Raises NotFound, or StaleEdit when `version` is not the stored one."""
    plan: Plan | None = (
        Plan.objects.select_for_update(no_key=True, of=("self",))
        .select_related("workload__cluster", "requester")
        .filter(pk=plan_id)
        .first()
    )
    if plan is None:
        raise NotFound("plan-unknown", "There is no such plan.")
    check_version(expected=version, actual=plan.version)
    return plan


def excluded_voters(plan: Plan, user: User, origin: TokenOrigin | None) -> dict[str, str]:
    """Who may not vote: requester, whoever asks, editors, and people behind a token."""
    editors = [person.username for person in plan.editors.all()]
    found = exclusions(requester=plan.requester.username, editors=editors, token=origin, now=database_now())
    found.setdefault(user.username, "requester")
    return {**plan.answerable, **found}


def _people_behind(user: User, origin: TokenOrigin | None) -> dict[str, str]:
    """Who answers for a draft or an edit that a token sent, by name, with the code of why they may not vote on it."""
    if origin is None:
        return {}
    return exclusions(requester=user.username, editors=[], token=origin, now=database_now())


def read_draft(draft: Mapping[str, Any]) -> Json:
    """A draft in one of its three forms; what it means for the live set is checked by the worker. Raises BadInput."""
    forms = {"roles", "spec_roles", "back_to"} & set(draft)
    if len(forms) != 1 or len(draft) != 1:
        raise BadInput(
            "draft-form",
            "A draft has exactly one of roles, spec_roles or back_to.",
            next_action="Send changes per role, the whole spec.roles, or the id of a recorded revision.",
            field="draft",
        )
    if MARK in json.dumps(draft):
        raise BadInput(
            "redacted-value",
            "The draft holds a salted hash that stands for a hidden value, and would write it as the value.",
            next_action="Send the value itself; a draft under `roles` may leave it out to keep what stands.",
            field="draft",
        )
    return dict(draft)


def _ready_bounds(plan: Plan) -> Json:
    if plan.state != Plan.State.READY or plan.bounds is None:
        raise Refused(
            "plan-not-ready",
            f"The plan is {plan.state}.",
            next_action="Wait for the check, or mend what blocks it and edit the plan.",
            problem=plan.problem,
            blocking=[h["id"] for h in plan.hazards if h["severity"] == "block"],
        )
    unread = [h["id"] for h in plan.hazards if h["severity"] == "warn" and h["id"] not in plan.acknowledged]
    if unread:
        raise Refused(
            "hazards-not-acknowledged",
            f"Warnings were not acknowledged: {', '.join(unread)}.",
            next_action="The requester acknowledges each of them.",
            hazards=unread,
        )
    bounds: Json = plan.bounds
    return bounds


def _refuse_unapproved(plan: Plan, risk: str) -> None:
    approved = approved_request(
        subject_kind=SUBJECT, subject_id=str(plan.pk), step="", attempt=0, digest=plan.digest
    )
    if not approved:
        raise Refused(
            "not-approved",
            "No standing approval covers this version of the plan.",
            next_action="Request approval, or wait for the missing votes.",
            missing=risk,
        )


def _refuse_cluster(writes: str, reason: str) -> None:
    if writes not in {"ours", "unknown"}:
        raise Refused(
            "cluster-read-only",
            f"This installation may not write to the cluster ({writes}): {reason}",
            next_action="Prepare the cluster, adopt, or take it over.",
        )


def _refuse_while_running(plan: Plan) -> None:
    running = (
        Operation.objects.filter(kind="upgrade", subject_id=str(plan.pk)).exclude(state__in=FINISHED).first()
    )
    if running is not None:
        raise Refused(
            "plan-running",
            f"Operation {running.pk} is running on this plan.",
            next_action="Abort it first, or draft another plan.",
            operation=running.pk,
        )


def _void(plan: Plan, reason: str, actor: Actor) -> None:
    mark_stale(subject_kind=SUBJECT, subject_id=str(plan.pk), reason=reason, actor=actor)


def _send_to_check(plan: Plan, actor: Actor, action: str, *, before: Json | None) -> None:
    plan.state, plan.problem = Plan.State.CHECKING, {}
    plan.version += 1 if before is not None else 0
    run = create_run(
        kind=CHECK,
        args={"plan": plan.pk, "version": plan.version},
        cluster=plan.workload.cluster,
        namespace=plan.workload.namespace,
    )
    plan.run = run
    plan.save()
    _tell(plan, actor, action, before=before, after={"version": plan.version, "draft": plan.draft})


def _changed(plan: Plan, actor: Actor, action: str, *, before: Json | None, after: Json) -> None:
    plan.version += 1
    plan.save()
    _tell(plan, actor, action, before=before, after=after)


def _tell(plan: Plan, actor: Actor, action: str, *, before: Json | None, after: Json) -> None:
    record_event(
        actor=actor,
        action=action,
        target_kind="plan",
        target_id=str(plan.pk),
        before=before,
        after=after,
        reason=plan.reason,
    )
    events.publish(
        event="plan-changed", object_kind="plan", object_id=str(plan.pk), data={"state": plan.state}
    )
