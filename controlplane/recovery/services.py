"""Writes on combinations: store, verify, pin, revoke, and the Runs that people ask for."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from controlplane import events
from controlplane.access.models import User
from controlplane.access.permissions import require
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, refused_by
from controlplane.fleet.models import Cluster, Workload
from controlplane.operations.models import Run
from controlplane.operations.runs import create_run
from controlplane.paths.golden import summary_of
from controlplane.paths.recording import record_golden_of, withdraw_voucher
from controlplane.recovery.locking import lock_combination
from controlplane.recovery.models import Combination
from controlplane.recovery.secrecy import document_digest
from policy.recovery.states import Event, transition
from policy.rollout.refusal import Refusal

Json = dict[str, Any]

CAPTURE, COMPARE, PLAN = "recovery.capture_now", "recovery.compare", "recovery.plan_restore"


def store_combination(
    *, cluster: Cluster, document: Json, reason: str, actor: Actor, evidence: Json | None = None
) -> tuple[Combination, bool]:
    """The combination of this document, and whether it is new. What says the same as the newest one of the set is that
    one, unless it was revoked. With `evidence` ({kind, id}: what proved it) it is verified as well."""
    named, digest = document["set"], document_digest(document)
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)  # numbers are given one at a time
        rows = Combination.objects.of_set(cluster=cluster, namespace=named["namespace"], name=named["name"])
        newest = rows.first()
        same = (
            newest is not None
            and newest.digest == digest
            and newest.uid == named["uid"]
            and newest.state != Combination.State.REVOKED
        )
        if newest is not None and same:
            found = newest
        else:
            found = Combination.objects.create(
                cluster=cluster,
                namespace=named["namespace"],
                name=named["name"],
                uid=named["uid"],
                number=(newest.number if newest else 0) + 1,
                revision=document["workload"]["revision"],
                document=document,
                digest=digest,
                reason=reason,
                captured_at=database_now(),
                captured_by=actor.on_behalf_of or actor.name,
            )
            _tell(found, actor, "combination.capture", before=None, reason=reason)
        if evidence is not None:
            verify_combination(combination_id=found.pk, evidence=evidence, actor=actor)
            found.refresh_from_db()
    return found, not same


def verify_combination(*, combination_id: int, evidence: Json, actor: Actor) -> Combination:
    """Say that it was proved; `evidence` names by what. Verified twice is verified. What an operation saw of the path
    becomes golden outputs for which the combination vouches. Raises Refused `combination-revoked`."""
    with transaction.atomic():
        found = lock_combination(combination_id)
        before = {"state": found.state}
        proved_now = found.state != Combination.State.VERIFIED
        if proved_now:
            _move(found, Event.VERIFY)
            found.evidence, found.verified_at = evidence, database_now()
        if _vouches_anew(found, evidence, actor) or proved_now:
            _changed(found, actor, "combination.verify", before=before)
    return found


def _vouches_anew(found: Combination, evidence: Json, actor: Actor) -> bool:
    """Name the golden outputs that an operation gave with the combination; whether there are any."""
    if evidence.get("kind") != "operation":
        return False
    given = record_golden_of(
        subject=("operation", str(evidence["id"])),
        revision=found.revision,
        pools=[str(pool["uid"]) for pool in found.document["pools"]],
        voucher=_voucher(found),
        actor=actor,
    )
    named: Json = {"outputs": [summary_of(golden) for golden in given]}
    if not given or named == found.golden:
        return False
    found.golden = named
    return True


def _voucher(found: Combination) -> Json:
    return {"kind": "combination", "id": found.pk}


def revoke_combination(
    *, combination_id: int, version: int, reason: str, user: User, actor: Actor
) -> Combination:
    """Take it out of use for good; a restore of it then needs the normal approval, and golden outputs for which it
    alone vouched are compared with no more. Raises StaleEdit, Refused."""
    with transaction.atomic():
        found = lock_combination(combination_id, version)
        _require(user, found)
        before = {"state": found.state}
        _move(found, Event.REVOKE)
        found.revoked_reason = reason
        withdraw_voucher(voucher=_voucher(found), reason=reason, actor=actor)
        _changed(found, actor, "combination.revoke", before=before, reason=reason)
    return found


def pin_combination(*, combination_id: int, version: int, user: User, actor: Actor) -> Combination:
    """Keep it at hand whatever is captured later."""
    return _pin(combination_id, version, user, actor, pinned=True)


def unpin_combination(*, combination_id: int, version: int, user: User, actor: Actor) -> Combination:
    """No longer pinned."""
    return _pin(combination_id, version, user, actor, pinned=False)


def request_capture(*, workload_id: int, reason: str, user: User, actor: Actor) -> Run:
    """Ask a worker to capture what stands: web processes hold no cluster credentials. Raises NotFound."""
    with transaction.atomic():
        workload = Workload.objects.select_related("cluster").filter(pk=workload_id, gone_at=None).first()
        if workload is None:
            raise NotFound("workload-unknown", "There is no such workload.", field="workload")
        require(user, "combination.manage", cluster=workload.cluster.name, namespace=workload.namespace)
        record_event(
            actor=actor,
            action="combination.request_capture",
            target_kind="workload",
            target_id=str(workload.pk),
            reason=reason,
        )
        return create_run(
            kind=CAPTURE,
            args={"workload": workload.pk, "reason": reason, "by": actor.name},
            cluster=workload.cluster,
            namespace=workload.namespace,
        )


def request_comparison(*, combination_id: int, kind: str, options: Json) -> Run:
    """Ask a worker what differs now (COMPARE), or in which order it would be put back (PLAN)."""
    found = Combination.objects.select_related("cluster").get(pk=combination_id)
    args: Json = {"combination": found.pk, **({"options": options} if kind == PLAN else {})}
    return create_run(kind=kind, args=args, cluster=found.cluster, namespace=found.namespace)


def _pin(combination_id: int, version: int, user: User, actor: Actor, *, pinned: bool) -> Combination:
    with transaction.atomic():
        found = lock_combination(combination_id, version)
        _require(user, found)
        before = {"pinned": found.pinned}
        found.pinned = pinned
        _changed(found, actor, "combination.pin" if pinned else "combination.unpin", before=before)
    return found


def _require(user: User, found: Combination) -> None:
    require(user, "combination.manage", cluster=found.cluster.name, namespace=found.namespace)


def _move(found: Combination, event: Event) -> None:
    after = transition(found.state, event)
    if isinstance(after, Refusal):
        raise refused_by(after, state=found.state)
    found.state = after


def _changed(found: Combination, actor: Actor, action: str, *, before: Json | None, reason: str = "") -> None:
    found.version += 1
    found.save()
    _tell(found, actor, action, before=before, reason=reason)


def _tell(found: Combination, actor: Actor, action: str, *, before: Json | None, reason: str) -> None:
    record_event(
        actor=actor,
        action=action,
        target_kind="combination",
        target_id=str(found.pk),
        before=before,
        after={
            "number": found.number,
            "set": f"{found.namespace}/{found.name}",
            "digest": found.digest,
            "state": found.state,
            "pinned": found.pinned,
        },
        reason=reason,
    )
    events.publish(
        event="combination-changed",
        object_kind="combination",
        object_id=str(found.pk),
        data={"state": found.state},
    )
