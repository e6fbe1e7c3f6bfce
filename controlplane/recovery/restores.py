"""Starting a restore: who may, what was typed, what it takes over from, and who looks at it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db import transaction

from controlplane.access.models import User
from controlplane.access.permissions import require
from controlplane.approvals.models import ChangeRequest
from controlplane.approvals.services import approved_request, mark_stale, open_request
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, NotAllowed, Refused
from controlplane.operations.clock import database_now
from controlplane.operations.contract import PlannedStep
from controlplane.operations.creation import (
    NewOperation,
    Target,
    create_operation,
    supersede_operation,
)
from controlplane.operations.installation import this_installation
from controlplane.operations.models import Operation, OperationTarget
from controlplane.operations.orphans import operation_name
from controlplane.operations.pauses import pause_automation
from controlplane.recovery.locking import lock_combination
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.ordering import ending_steps
from policy.approval.eligibility import RECENT_SIGN_IN, TokenOrigin, exclusions
from policy.approval.lifecycle import request_expiry
from policy.approval.quorum import APPROVER, Slot, slots_for
from policy.approval.risk import DEFAULT_POLICY, Environment, Level
from policy.canonical import digest
from policy.recovery.states import is_trusted

Json = dict[str, Any]
SUBJECT, REVIEW = "recovery.restore", "recovery.review"
REVIEW_WITHIN = timedelta(hours=24)
ABORT_STEP, STOP_STEP = "recovery.plan_abort", "recovery.freeze"
# What a superseding restore must not take from the memory of the operation that it takes over from.
_FRESH: Json = {
    "box": None,
    "expected": "",
    "expires": {},
    "abort": {},
    "calm": {},
    "progress": {},
    "draining": {},
    "touches": {},
    "told_written_over": "",
    "told_breach": "",
    "order": {},
    "parts_done": [],
    "way": "",
    "let_go": False,
    "bits": {},
    "diff_after": [],
    "counted": {},
    "settle": False,
}


def request_restore(
    *,
    combination_id: int,
    version: int,
    reason: str,
    options: Mapping[str, Any],
    user: User,
    origin: TokenOrigin | None,
    actor: Actor,
) -> ChangeRequest:
    """Ask for the votes that a restore of a candidate or revoked combination needs. Raises Refused `no-vote-needed`
    for a verified one."""
    with transaction.atomic():
        found = lock_combination(combination_id, version)
        cluster = found.cluster
        require(user, "plan.request", cluster=cluster.name, namespace=found.namespace)
        if not needs_vote(found):
            raise Refused(
                "no-vote-needed",
                "A verified combination is restored without a vote beforehand.",
                next_action="Start the restore; somebody else reviews it within 24 hours.",
            )
        risk = "medium" if is_trusted(found.state) else _risk(found)
        return open_request(
            subject_kind=SUBJECT,
            subject_id=found.pk,
            digest=restore_digest(found, options),
            title=f"Restore {found}",
            reason=reason,
            evidence={"combination": found.number, "state": found.state, "digest": found.digest,
                      "revoked_reason": found.revoked_reason, "options": dict(options)},
            risk=risk,
            slots=slots_for(risk),
            cluster=cluster.name,
            namespace=found.namespace,
            requester=user,
            excluded=exclusions(requester=user.username, editors=[], token=origin, now=database_now()),
            expires_at=request_expiry(database_now()),
            actor=actor,
        )  # fmt: skip


def needs_vote(found: Combination) -> bool:
    """Whether somebody has to vote beforehand: for all but verified ones, and where the environment asks for it."""
    return not is_trusted(found.state) or found.cluster.environment in settings.LOCKSTEP_RESTORE_VOTES


def _risk(found: Combination) -> Level:
    return DEFAULT_POLICY.span[cast(Environment, found.cluster.environment)][1]


def restore_digest(found: Combination, options: Mapping[str, Any]) -> str:
    """What is approved: this combination in this state, with what was agreed to."""
    return digest({"combination": found.digest, "state": found.state, "options": read_agreed(options)})


def read_agreed(options: Mapping[str, Any]) -> Json:
    """Options with their defaults."""
    return {
        "accept_outage": bool(options.get("accept_outage")),
        "writers": sorted(str(each) for each in options.get("writers") or ()),
    }


def start_restore(
    *,
    combination_id: int,
    version: int,
    reason: str,
    confirm: str,
    options: Mapping[str, Any],
    user: User,
    signed_in_at: datetime | None,
    actor: Actor,
) -> Restore:
    """Create the operation, in the place of one that runs on the set. The worker looks before any write.

    Raises NotAllowed `sign-in-too-old`, BadInput `confirmation-wrong`, Refused `not-approved`, `cluster-read-only`,
    `target-taken`, StaleEdit.
    """
    with transaction.atomic():
        # The operation first, as its own steps lock it before they store a combination.
        running = _running_on(combination_id)
        found = lock_combination(combination_id, version)
        require(user, "restore.start", cluster=found.cluster.name, namespace=found.namespace)
        now = database_now()
        _refuse_old_sign_in(signed_in_at, now)
        _refuse_unconfirmed(found, confirm)
        _refuse_cluster(found)
        reviewed_before = needs_vote(found)
        if reviewed_before:
            _refuse_unapproved(found, options)
        operation = _begin(found, running, reason=reason, options=options, user=user, actor=actor)
        pause_automation(
            cluster=found.cluster,
            namespace=found.namespace,
            name=found.name,
            reason=f"Operation {operation.pk} restored {found}.",
            actor=actor,
        )
        restore = Restore.objects.create(
            operation=operation,
            combination=found,
            superseded=running,
            review=None if reviewed_before else _ask_review(found, operation, reason, user, now, actor),
            options=read_agreed(options),
            opened_at=now,
        )
        record_event(
            actor=actor,
            action="combination.restore",
            target_kind="combination",
            target_id=str(found.pk),
            after={"operation": operation.pk, "supersedes": running.pk if running else None,
                   "options": restore.options, "state": found.state},
            reason=reason,
        )  # fmt: skip
    return restore


def targets_of(document: Json) -> list[Target]:
    """Everything that a restore may write: set, routers, objectives of pools, routes, scalers."""
    found = [Target("set", document["set"]["uid"])]
    for pool in document["pools"]:
        if pool["router"]["deployment_uid"]:
            found.append(Target("router", pool["router"]["deployment_uid"]))
        found.append(Target("objectives", pool["uid"]))
    found += [Target("route", route["uid"]) for route in document["routes"]]
    found += [Target("scaler", scaler["uid"]) for scaler in document["scalers"]]
    return found


def _begin(
    found: Combination,
    running: Operation | None,
    *,
    reason: str,
    options: Mapping[str, Any],
    user: User,
    actor: Actor,
) -> Operation:
    new = NewOperation(
        kind="restore",
        subject_id=str(found.pk),
        digest=found.digest,
        cluster=found.cluster,
        namespace=found.namespace,
        title=f"Restore {found.namespace}/{found.name} to combination {found.number}",
        reason=reason,
        targets=targets_of(found.document),
        steps=[PlannedStep("recovery.check"), *ending_steps()],
        abort_step=ABORT_STEP,
        stop_step=STOP_STEP,
        memory=_memory(found, running, options),
    )
    if running is None:
        return create_operation(new=new, started_by=user, actor=actor)
    mark_stale(
        subject_kind="operations.hold",
        subject_id=str(running.pk),
        reason="A restore took this operation's place.",
        actor=actor,
    )
    return supersede_operation(operation_id=running.pk, new=new, started_by=user, actor=actor)


def _memory(found: Combination, running: Operation | None, options: Mapping[str, Any]) -> Json:
    return {
        **_FRESH,
        "combination": found.pk,
        "installation": str(this_installation().pk),
        "namespace": found.namespace,
        "name": found.name,
        "uid": found.uid,
        "options": read_agreed(options),
        "stable_for": str(settings.LOCKSTEP_STABLE_FOR),
        "stuck_after": str(settings.LOCKSTEP_STUCK_AFTER),
        "inherits": operation_name(running.pk) if running else "",
        # Where the superseded operation never wrote its hold there is none to look after.
        "holding": bool(running and running.memory.get("holding")),
    }


def _running_on(combination_id: int) -> Operation | None:
    """The unfinished operation that has taken the combination's set, locked."""
    found = Combination.objects.only("cluster", "uid").filter(pk=combination_id).first()
    if found is None:
        return None
    taken = OperationTarget.objects.filter(
        cluster=found.cluster_id, kind="set", uid=found.uid, released=False
    )
    rows = Operation.objects.unfinished().filter(pk__in=taken.values("operation_id"))
    return rows.select_for_update(no_key=True, of=("self",)).first()


def _ask_review(
    found: Combination, operation: Operation, reason: str, user: User, now: datetime, actor: Actor
) -> ChangeRequest:
    """Nobody voted beforehand: somebody else closes this within a day, by approving or rejecting what was done."""
    return open_request(
        subject_kind=REVIEW,
        subject_id=operation.pk,
        digest=found.digest,
        title=f"Review: {operation.title}",
        reason=reason,
        evidence={"combination": found.number, "digest": found.digest, "operation": operation.pk},
        risk="medium",
        slots=(Slot(APPROVER),),
        cluster=found.cluster.name,
        namespace=found.namespace,
        requester=user,
        excluded=exclusions(requester=user.username, editors=[], token=None, now=now),
        expires_at=now + REVIEW_WITHIN,
        actor=actor,
    )


def _refuse_old_sign_in(signed_in_at: datetime | None, now: datetime) -> None:
    if signed_in_at is None or not timedelta(0) <= now - signed_in_at <= RECENT_SIGN_IN:
        minutes = int(RECENT_SIGN_IN.total_seconds() // 60)
        raise NotAllowed(
            "sign-in-too-old",
            f"A restore needs a sign-in within the last {minutes} minutes.",
            next_action="Sign in again, then restore.",
        )


def _refuse_unconfirmed(found: Combination, confirm: str) -> None:
    names = [found.name, *(pool["name"] for pool in found.document["pools"])]
    if confirm not in names:
        raise BadInput(
            "confirmation-wrong",
            f"{confirm!r} is not the name of the set or of one of its pools.",
            next_action=f"Type {' or '.join(dict.fromkeys(names))}.",
            field="confirm",
        )


def _refuse_cluster(found: Combination) -> None:
    if found.cluster.writes not in {"ours", "unknown"}:
        raise Refused(
            "cluster-read-only",
            f"This installation may not write to the cluster ({found.cluster.writes}):"
            f" {found.cluster.writes_reason}",
            next_action="Prepare the cluster, adopt, or take it over.",
        )


def _refuse_unapproved(found: Combination, options: Mapping[str, Any]) -> None:
    approved = approved_request(
        subject_kind=SUBJECT, subject_id=found.pk, digest=restore_digest(found, options)
    )
    if approved is None:
        raise Refused(
            "not-approved",
            f"This combination is {found.state}, and no standing approval covers its restore with these options.",
            next_action="Request approval, or wait for the missing votes.",
        )
