"""Capturing: what stands becomes a combination. As a step of an operation, and as a Run that a person asks for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from controlplane.audit.actor import worker
from controlplane.errors import LockstepError, Refused
from controlplane.fleet.models import Workload
from controlplane.kube.client import Kube
from controlplane.operations.claims import lock_claim
from controlplane.operations.clock import brief_transaction
from controlplane.operations.contract import Done, Hold, Outcome, StepContext
from controlplane.operations.installation import check_installation
from controlplane.recovery.models import Combination
from controlplane.recovery.picture import picture_of
from controlplane.recovery.publishing import publish_last
from controlplane.recovery.reading import read_seen
from controlplane.recovery.services import store_combination, verify_combination
from policy.recovery.diff import diff_combination
from policy.recovery.order import Options, Order, order_parts

Json = dict[str, Any]


def capture(context: StepContext, *, reason: str, verified: bool = False) -> Outcome:
    """A step: store what stands as a combination; with `verified` the operation itself is what has proved it.

    Memory: namespace, name, uid of the set; remembers `captured`, the combination's id.
    """
    memory = context.operation.memory
    try:
        document = read_document(context.kube, memory["namespace"], memory["name"], uid=memory["uid"])
    except Refused as refused:
        return Hold(refused.code, refused.sentence, refused.next_action or "Retry, or abort.", refused.facts)
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        found, made = store_combination(
            cluster=context.cluster,
            document=document,
            reason=reason,
            actor=worker("capture"),
            evidence={"kind": "operation", "id": context.operation.id} if verified else None,
        )
    return Done(
        result={"combination": found.pk, "number": found.number, "state": found.state, "new": made},
        remember={"captured": found.pk},
    )


def verify_captured(context: StepContext) -> Outcome:
    """A step: what this operation captured still stands in every part; then it is verified."""
    found = Combination.objects.get(pk=context.operation.memory["captured"])
    seen = read_seen(context.kube, found.namespace, found.name, recorded=found.document)
    differs = [each for each in diff_combination(found.document, seen.document) if each.verdict == "differs"]
    if differs:
        said = "; ".join(f"{each.part} {each.name}: {', '.join(each.what)}" for each in differs)
        return Hold(
            code="combination-changed",
            sentence=f"What was captured as {found} has changed before it was verified: {said}.",
            next_action="Find out who changed it, put it back, then retry; or abort.",
            facts={"diff": [asdict(each) for each in differs]},
        )
    with brief_transaction():
        lock_claim(operation_id=context.operation.id, fence=context.fence)
        verify_combination(
            combination_id=found.pk,
            evidence={"kind": "operation", "id": context.operation.id},
            actor=worker("verify"),
        )
    return Done(result={"combination": found.pk, "number": found.number})


def read_document(kube: Kube, namespace: str, name: str, *, uid: str) -> Json:
    """The document of a set that stands in one revision. Raises Refused `set-gone`, `set-replaced`,
    `not-one-revision`, `parts-unread`."""
    seen = read_seen(kube, namespace, name)
    named, workload = seen.document["set"], seen.document["workload"]
    if workload is None:
        raise Refused("set-gone", f"{namespace}/{name} no longer exists.")
    if named["uid"] != uid:
        raise Refused("set-replaced", f"{namespace}/{name} was deleted and created again.")
    if not workload["revision"] or set(workload["revisions"]) - {workload["revision"]}:
        raise Refused(
            "not-one-revision",
            f"{namespace}/{name} does not stand in one revision: {', '.join(workload['revisions']) or 'none'}.",
            next_action="Wait until its rollout is over, or abort it, then capture.",
            revisions=workload["revisions"],
        )
    if seen.document["unread"]:
        raise Refused(
            "parts-unread",
            f"This account may not list {', '.join(seen.document['unread'])}: the combination would lack them.",
            next_action="Give Lockstep's account the rights as shipped.",
        )
    return seen.document


def capture_now(*, kube: Kube | None, now: datetime, workload: int, reason: str, by: str) -> Json:
    """A Run: capture what stands, as a candidate."""
    assert kube is not None
    found = Workload.objects.select_related("cluster").get(pk=workload)
    document = read_document(kube, found.namespace, found.name, uid=found.uid)
    stored, made = store_combination(
        cluster=found.cluster,
        document=document,
        reason=reason,
        actor=worker("capture", on_behalf_of=by),
    )
    copies = []
    if check_installation(kube, found.cluster) is None:  # elsewhere it stays in the database alone
        copies = publish_last(kube, found.cluster, namespace=found.namespace, name=found.name)
    return {
        "combination": stored.pk,
        "number": stored.number,
        "state": stored.state,
        "new": made,
        "copies": copies,
    }


def compare(*, kube: Kube | None, now: datetime, combination: int) -> Json:
    """A Run: the combination against what is there now, part by part."""
    assert kube is not None
    found = Combination.objects.get(pk=combination)
    seen = read_seen(kube, found.namespace, found.name, recorded=found.document)
    return {
        "combination": found.pk,
        "at": now.isoformat(),
        "parts": [asdict(each) for each in diff_combination(found.document, seen.document)],
        "secrets": found.document["secrets"],
    }


def plan_restore(*, kube: Kube | None, now: datetime, combination: int, options: Json) -> Json:
    """A Run: in which order the parts would be put back now, what stands against it, what it costs."""
    assert kube is not None
    found = Combination.objects.get(pk=combination)
    order = order_now(kube, found, options)
    return {"combination": found.pk, "at": now.isoformat(), **order_as_json(order)}


def order_now(kube: Kube, found: Combination, options: Json) -> Order:
    """The order of parts, from one live look. Raises Refused `set-gone`, `set-replaced`."""
    seen = read_seen(kube, found.namespace, found.name, recorded=found.document)
    picture = picture_of(found.document, seen)
    if picture is None:
        raise Refused("set-gone", f"{found.namespace}/{found.name} no longer exists.")
    if seen.document["set"]["uid"] != found.uid:
        raise Refused("set-replaced", f"{found.namespace}/{found.name} was deleted and created again.")
    return order_parts(picture, read_options(options))


def read_options(options: Json) -> Options:
    """What a person agreed to."""
    return Options(
        accept_outage=bool(options.get("accept_outage")), writers=tuple(options.get("writers") or ())
    )


def order_as_json(order: Order) -> Json:
    """For results and pages."""
    return {
        "parts": [asdict(each) for each in order.parts],
        "refusals": [asdict(each) for each in order.refusals],
        "writers": list(order.writers),
        "outage": order.outage,
        "estimate": asdict(order.estimate),
    }


def refuse_unreadable(error: LockstepError) -> Hold:
    """A refusal of a look as the finding of a step."""
    return Hold(error.code, error.sentence, error.next_action or "Abort.", error.facts)
