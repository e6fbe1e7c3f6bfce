"""Who we are to the clusters: one installation row here, one Lease in each cluster that names who may write
to it.

Without the Lease nothing is written. It is claimed once, when a cluster is new to everybody; after that it
changes hands only by an explicit, audited takeover, which counts its transitions up and so raises every later
fence number above all earlier ones, ours and theirs.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from controlplane.audit.actor import Actor, command, worker
from controlplane.audit.services import record_event
from controlplane.errors import NotFound
from controlplane.fleet.models import Cluster
from controlplane.fleet.services import mark_cluster_writes
from controlplane.kube.client import Kube
from controlplane.kube.errors import AlreadyExists, Denied, ObjectMissing
from controlplane.kube.resources import LEASES
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.contract import Hold, RunDef, RunRegistry
from controlplane.operations.lease import LEASE_NAME, LEASE_NAMESPACE, lease_body
from controlplane.operations.lease import holder_of as _holder
from controlplane.operations.lease import transitions_of as _transitions
from controlplane.operations.models import Installation, Run
from controlplane.operations.runs import create_run

Json = dict[str, Any]

TAKE_OVER = "operations.take_over"
ENSURE_LEASE = "operations.ensure_lease"
# After a check that came to nothing (no credentials, no answer) the sweep lets this much time pass.
ASK_AGAIN_AFTER = timedelta(seconds=60)


def this_installation() -> Installation:
    """Our row, made on first use."""
    row, _ = Installation.objects.get_or_create(
        only=True, defaults={"id": uuid.uuid4(), "created_at": database_now()}
    )
    return row


def record_sweep(*, now: datetime) -> None:
    """Note that a full sweep has been made, for /readyz."""
    Installation.objects.filter(pk=this_installation().pk).update(reconciled_at=now)


def check_installation(kube: Kube, cluster: Cluster) -> Hold | None:
    """None where the cluster's Lease, read now, names us and no later holder; else the finding. Call it first
    of all to fence: a number is only ours to raise where the Lease is ours."""
    lease = kube.find(LEASES, LEASE_NAME, LEASE_NAMESPACE)
    if lease is None:
        return Hold(
            "no-installation-lease",
            f"The Lease {LEASE_NAMESPACE}/{LEASE_NAME} is not there, so nobody may write to {cluster.name}.",
            "Take the cluster over, then resume.",
        )
    holder, transitions = _holder(lease), _transitions(lease)
    if holder != str(this_installation().pk):
        return Hold(
            "foreign-installation",
            f"{cluster.name} belongs to another installation ({holder or 'nobody'}).",
            "Abort there and let it go, or take the cluster over, then resume.",
            facts={"holder": holder, "lease_transitions": transitions},
        )
    if transitions > cluster.lease_transitions:
        return Hold(
            "database-behind",
            f"The Lease of {cluster.name} has changed hands {transitions} times, and this database knows of"
            f" {cluster.lease_transitions}: it is older than the cluster.",
            "If this database was restored from a backup: adopt, or abort.",
            facts={"lease_transitions": transitions, "ours": cluster.lease_transitions},
        )
    return None


def ensure_lease(*, kube: Kube, cluster: Cluster, actor: Actor) -> str:
    """Claim the Lease of a cluster that is new to everybody, or see whose it is; returns the `Cluster.Writes`
    value that is stored with the cluster. Never takes anything from anybody."""
    try:
        lease = kube.find(LEASES, LEASE_NAME, LEASE_NAMESPACE)
        if lease is None and cluster.lease_transitions == 0:
            lease = _claim_lease(kube)
    except (ObjectMissing, Denied) as error:
        return _mark(cluster, Cluster.Writes.UNPREPARED, error.message, actor)
    if lease is None:
        gone = "The installation Lease is gone: take the cluster over to write again."
        return _mark(cluster, Cluster.Writes.FOREIGN, gone, actor)
    if _holder(lease) != str(this_installation().pk):
        reason = f"Installation {_holder(lease) or 'nobody'} holds the Lease."
        return _mark(cluster, Cluster.Writes.FOREIGN, reason, actor)
    transitions = _transitions(lease)
    # 1 and 0: our first claim, of which nothing was written down before a crash.
    if transitions > cluster.lease_transitions and (transitions, cluster.lease_transitions) != (1, 0):
        reason = f"The Lease changed hands {transitions} times, we know of {cluster.lease_transitions}."
        return _mark(cluster, Cluster.Writes.BEHIND, reason, actor)
    return _mark(cluster, Cluster.Writes.OURS, "", actor, transitions=transitions)


def _claim_lease(kube: Kube) -> Json:
    try:
        return kube.create(LEASES, _new_lease(transitions=1))
    except AlreadyExists:
        return kube.get(LEASES, LEASE_NAME, LEASE_NAMESPACE)


def take_over_cluster(*, kube: Kube, cluster: Cluster, reason: str, actor: Actor) -> Cluster:
    """Make the Lease ours, whoever holds it, and count its transitions up: every number drawn before is below
    ours from then on. Done over after a crash it counts up once more, which harms nothing. Raises
    KubeError."""
    lease = kube.find(LEASES, LEASE_NAME, LEASE_NAMESPACE)
    before = {"holder": _holder(lease), "lease_transitions": _transitions(lease)}
    transitions = max(_transitions(lease), cluster.lease_transitions) + 1
    wanted = _new_lease(transitions=transitions)
    if lease is None:
        kube.create(LEASES, wanted)
    else:
        kube.replace(LEASES, {**lease, "spec": {**(lease.get("spec") or {}), **wanted["spec"]}})
    _mark(cluster, Cluster.Writes.OURS, "", actor, transitions=transitions)
    with brief_transaction():
        record_event(
            actor=actor,
            action="cluster.take_over",
            target_kind="cluster",
            target_id=cluster.name,
            before=before,
            after={"holder": str(this_installation().pk), "lease_transitions": transitions},
            reason=reason,
        )
    return cluster


def request_take_over(*, cluster_id: int, reason: str, actor: Actor) -> Run:
    """Ask a worker to take the cluster over: web processes hold no cluster credentials. Raises NotFound."""
    with brief_transaction():
        cluster = Cluster.objects.filter(pk=cluster_id).first()
        if cluster is None:
            raise NotFound("not-found", f"There is no cluster {cluster_id}.")
        record_event(
            actor=actor,
            action="cluster.request_take_over",
            target_kind="cluster",
            target_id=cluster.name,
            reason=reason,
        )
        args = {"cluster_id": cluster.pk, "reason": reason, "by": actor.name}
        return create_run(kind=TAKE_OVER, args=args, cluster=cluster)


def check_unknown_clusters() -> int:
    """Ask a worker for the right to write of every cluster where it is not known; how many were asked for."""
    pause = database_now() - ASK_AGAIN_AFTER
    asked = Run.objects.filter(kind=ENSURE_LEASE).filter(Q(state=Run.State.WAITING) | Q(created_at__gt=pause))
    unknown = Cluster.objects.filter(writes=Cluster.Writes.UNKNOWN).exclude(pk__in=asked.values("cluster_id"))
    for cluster in unknown:
        create_run(kind=ENSURE_LEASE, args={"cluster_id": cluster.pk}, cluster=cluster)
    return len(unknown)


def _run_take_over(*, kube: Kube | None, now: datetime, cluster_id: int, reason: str, by: str) -> Json:
    assert kube is not None
    cluster = Cluster.objects.get(pk=cluster_id)
    take_over_cluster(kube=kube, cluster=cluster, reason=reason, actor=worker("take-over", on_behalf_of=by))
    return {"lease_transitions": cluster.lease_transitions}


def _run_ensure(*, kube: Kube | None, now: datetime, cluster_id: int) -> Json:
    assert kube is not None
    cluster = Cluster.objects.get(pk=cluster_id)
    return {"writes": ensure_lease(kube=kube, cluster=cluster, actor=command("sweep"))}


OWN_RUNS: RunRegistry = {TAKE_OVER: RunDef(_run_take_over), ENSURE_LEASE: RunDef(_run_ensure)}


def _mark(
    cluster: Cluster, writes: Cluster.Writes, reason: str, actor: Actor, *, transitions: int | None = None
) -> str:
    stored = mark_cluster_writes(
        cluster_id=cluster.pk, writes=writes, reason=reason, actor=actor, lease_transitions=transitions
    )
    cluster.writes, cluster.lease_transitions = stored.writes, stored.lease_transitions
    return str(writes)


def _new_lease(*, transitions: int) -> Json:
    return lease_body(holder=str(this_installation().pk), transitions=transitions, at=database_now())
