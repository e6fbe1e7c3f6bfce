"""Writes to the fleet: clusters by people, observations by watchers, revisions by whoever has seen them.

Observations are no acts of anybody, so they have no audit rows; each is one short transaction that takes
effect only under the newest watcher's fence number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from controlplane import events
from controlplane.access.etags import check_version
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, NotFound, Refused
from controlplane.fleet.models import Cluster, Revision, Workload
from controlplane.metrics.address import read_address
from controlplane.metrics.source import options_of, read_options

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a watcher has to say of one set. `headline` and `summary` are JSON values (see fleet.models)."""

    uid: str
    namespace: str
    name: str
    state: str
    target_revision: str
    headline: Json
    summary: Json


@dataclass(frozen=True, slots=True)
class SeenRevision:
    """A revision that a set has: incarnation start, UIDs of its LeaderWorkerSets, image IDs by role and
    container. `roles` is the defaulted spec.roles behind it, None where that is not certain."""

    label: str
    started_at: datetime | None
    members: tuple[str, ...]
    roles: Sequence[Mapping[str, Any]] | None
    roles_digest: str
    images: Mapping[str, Any]


def register_cluster(*, name: str, context: str, environment: str, actor: Actor) -> Cluster:
    """Add a cluster by the name of its kubeconfig context. Raises Refused `cluster-exists`, BadInput."""
    if not context.strip():
        raise BadInput(
            "context-missing", "A cluster needs the name of its kubeconfig context.", field="context"
        )
    if environment not in Cluster.Environment.values:
        raise BadInput("environment-unknown", f"{environment!r} is no environment.", field="environment")
    now = database_now()
    try:
        with transaction.atomic():
            cluster = Cluster.objects.create(
                name=name, context=context, environment=environment, created_at=now, updated_at=now
            )
            record_event(
                actor=actor,
                action="cluster.register",
                target_kind="cluster",
                target_id=name,
                after={"context": context, "environment": environment},
            )
            events.publish(event="cluster-changed", object_kind="cluster", object_id=str(cluster.pk))
    except IntegrityError as error:
        raise Refused(
            "cluster-exists",
            f"There is a cluster {name} already.",
            next_action="Choose another name.",
            field="name",
        ) from error
    return cluster


def set_metric_source(
    *,
    cluster_id: int,
    version: int,
    url: str | None = None,
    options: Mapping[str, Any] | None = None,
    actor: Actor,
) -> Cluster:
    """Say where a cluster's numbers come from: the base address of a Prometheus (empty: nowhere) and how names
    look there (`metrics.source.read_options`). None leaves as it is.

    Raises NotFound, StaleEdit, BadInput `metric-address-wrong`, `metric-address-credentials`,
    `metric-options-wrong`."""
    with transaction.atomic():
        cluster = _lock_cluster(cluster_id)
        check_version(expected=version, actual=cluster.version)
        before = {"metrics_url": cluster.metrics_url, "metrics_options": cluster.metrics_options}
        if url is not None:
            cluster.metrics_url = read_address(url, field="metrics_url") if url else ""
        if options is not None:
            cluster.metrics_options = options_of(read_options(options, where="metrics_options"))
        after = {"metrics_url": cluster.metrics_url, "metrics_options": cluster.metrics_options}
        if before == after:
            return cluster
        cluster.version += 1
        cluster.updated_at = database_now()
        cluster.save(update_fields=["metrics_url", "metrics_options", "version", "updated_at"])
        record_event(
            actor=actor,
            action="cluster.set_metric_source",
            target_kind="cluster",
            target_id=cluster.name,
            before=before,
            after=after,
        )
        events.publish(event="cluster-changed", object_kind="cluster", object_id=str(cluster.pk))
    return cluster


def recheck_cluster(*, cluster_id: int, actor: Actor) -> Cluster:
    """Forget what is known of the right to write, so that the next sweep looks again. Raises NotFound."""
    return mark_cluster_writes(
        cluster_id=cluster_id, writes=Cluster.Writes.UNKNOWN, reason="A check was asked for.", actor=actor
    )


def mark_cluster_writes(
    *,
    cluster_id: int,
    writes: str,
    reason: str,
    actor: Actor,
    lease_transitions: int | None = None,
    fence: int | None = None,
) -> Cluster:
    """Store whether this installation may write to a cluster. Audited where it changed. `lease_transitions`
    never shrinks. Raises NotFound."""
    with transaction.atomic():
        cluster = _lock_cluster(cluster_id)
        before = {"writes": cluster.writes, "lease_transitions": cluster.lease_transitions}
        cluster.writes, cluster.writes_reason = writes, reason
        cluster.lease_transitions = max(cluster.lease_transitions, lease_transitions or 0)
        after = {"writes": writes, "lease_transitions": cluster.lease_transitions}
        cluster.updated_at = database_now()
        cluster.save(update_fields=["writes", "writes_reason", "lease_transitions", "updated_at"])
        if before != after:
            record_event(
                actor=actor,
                action="cluster.mark_writes",
                target_kind="cluster",
                target_id=cluster.name,
                before=before,
                after=after,
                reason=reason,
                fence=fence,
            )
            events.publish(event="cluster-changed", object_kind="cluster", object_id=str(cluster.pk))
    return cluster


def claim_watch(*, cluster_id: int) -> int:
    """Become the cluster's watcher: returns a fence number above every earlier one. Whoever held a smaller
    one finds its writes refused. Raises NotFound."""
    with transaction.atomic():
        cluster = _lock_cluster(cluster_id)
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval('fleet_watch_fence')")
            number = int(cursor.fetchone()[0])
        cluster.watcher_fence = number
        cluster.save(update_fields=["watcher_fence"])
    return number


def record_watch(
    *,
    cluster_id: int,
    fence: int,
    current: bool,
    problem: str = "",
    kubernetes_version: str = "",
    lws_version: str = "",
) -> bool:
    """The heartbeat of a watch: `current` moves observed_at to now. False when a newer watcher has taken
    over."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE fleet_cluster
            SET observed_at = CASE WHEN %(current)s THEN clock_timestamp() ELSE observed_at END,
                problem = %(problem)s,
                kubernetes_version = COALESCE(NULLIF(%(kubernetes)s, ''), kubernetes_version),
                lws_version = COALESCE(NULLIF(%(lws)s, ''), lws_version)
            WHERE id = %(id)s AND watcher_fence = %(fence)s
            """,
            {
                "id": cluster_id,
                "fence": fence,
                "current": current,
                "problem": problem[:2000],
                "kubernetes": kubernetes_version[:60],
                "lws": lws_version[:60],
            },
        )
        return bool(cursor.rowcount == 1)


def record_observation(*, cluster_id: int, fence: int, seen: Observation) -> Workload | None:
    """Store what a set looks like; a row that says so already is left as it is. None, and nothing stored,
    when a newer watcher has taken over or has already written this row: an older picture never
    overwrites."""
    fields: Json = {
        "namespace": seen.namespace,
        "name": seen.name,
        "state": seen.state,
        "target_revision": seen.target_revision,
        "headline": seen.headline,
        "summary": seen.summary,
        "gone_at": None,
    }
    with transaction.atomic():
        if not Cluster.objects.filter(pk=cluster_id, watcher_fence=fence).exists():
            return None
        stamp = {"observed_at": database_now(), "observed_fence": fence}
        workload, made = Workload.objects.get_or_create(
            cluster_id=cluster_id, uid=seen.uid, defaults=fields | stamp
        )
        if not made:
            if workload.observed_fence > fence:
                return None
            if all(getattr(workload, name) == value for name, value in fields.items()):
                return workload
            mine = Workload.objects.filter(pk=workload.pk, observed_fence__lte=fence)
            if not mine.update(**fields, **stamp):
                return None
            for name, value in (fields | stamp).items():
                setattr(workload, name, value)
        events.publish(
            event="workload-changed",
            object_kind="workload",
            object_id=str(workload.pk),
            data={"state": seen.state, "namespace": seen.namespace, "name": seen.name},
        )
    return workload


def record_absence(*, cluster_id: int, fence: int, present: Iterable[str]) -> list[str]:
    """Mark every set of the cluster whose UID is not among `present` as gone, and end its revisions.
    Returns the UIDs that were marked; none when a newer watcher has taken over. Call it only after a
    complete list."""
    with transaction.atomic():
        if not Cluster.objects.filter(pk=cluster_id, watcher_fence=fence).exists():
            return []
        absent = Workload.objects.filter(
            cluster_id=cluster_id, gone_at=None, observed_fence__lte=fence
        ).exclude(uid__in=list(present))
        marked = {workload.pk: workload.uid for workload in absent}
        now = database_now()
        Workload.objects.filter(pk__in=marked).update(gone_at=now, observed_at=now, observed_fence=fence)
        Revision.objects.filter(workload__in=marked, ended_at=None).update(ended_at=now)
        for key in marked:
            events.publish(event="workload-gone", object_kind="workload", object_id=str(key))
    return list(marked.values())


def record_revision(
    *,
    workload: Workload,
    label: str,
    started_at: datetime | None = None,
    members: Sequence[str] = (),
    roles: Sequence[Mapping[str, Any]] | None = None,
    roles_digest: str = "",
    images: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> Revision:
    """Record a revision incarnation, or add to what is recorded of it.

    With `members` (UIDs of its LeaderWorkerSets) the incarnation is the one that shares one of them; none
    does: the label has come back, the open incarnation is ended and a new one begins at `started_at`.
    Without members it is the label's latest incarnation. `roles` is the whole defaulted spec.roles in
    order; the latest one stands.
    """
    seen = SeenRevision(label, started_at, tuple(members), roles, roles_digest, images or {})
    with transaction.atomic():
        Workload.objects.select_for_update(no_key=True).get(pk=workload.pk)
        return _record(workload, seen, now or database_now())


def record_revisions(*, workload: Workload, present: Sequence[SeenRevision]) -> None:
    """Record every revision that a set has now, and end those that it has no more.

    Roles are kept only where nothing contradicts them: a label that is on record under other templates
    stays as it was, since equal labels mean equal templates (digest 1.4) and a watch may see the set before
    its children."""
    with transaction.atomic():
        Workload.objects.select_for_update(no_key=True).get(pk=workload.pk)
        now = database_now()
        digests = recorded_digests(workload=workload)
        for seen in present:
            if digests.get(seen.label, seen.roles_digest) != seen.roles_digest:
                seen = replace(seen, roles=None, roles_digest="")
            _record(workload, seen, now)
        Revision.objects.filter(workload=workload, ended_at=None).exclude(
            label__in=[seen.label for seen in present]
        ).update(ended_at=now)


def recorded_digests(*, workload: Workload) -> dict[str, str]:
    """The templates digest under which each label of a set was last recorded."""
    rows = Revision.objects.filter(workload=workload).exclude(roles_digest="").order_by("started_at")
    return dict(rows.values_list("label", "roles_digest"))


def end_revision(*, workload: Workload, label: str, now: datetime | None = None) -> bool:
    """Note that nothing of a revision is left in the cluster; False when that was known."""
    ended = Revision.objects.filter(workload=workload, label=label, ended_at=None).update(
        ended_at=now or database_now()
    )
    return ended > 0


def _record(workload: Workload, seen: SeenRevision, now: datetime) -> Revision:
    revision = _find_incarnation(workload, seen.label, seen.started_at, seen.members, now)
    if revision is None:
        revision = Revision(workload=workload, label=seen.label, started_at=seen.started_at or now, images={})
    revision.members = sorted({*revision.members, *seen.members})
    if seen.members:
        revision.ended_at = None
    if seen.roles is not None:
        revision.roles = [dict(role) for role in seen.roles]
        revision.roles_digest = seen.roles_digest
    if seen.images:
        revision.images = {**revision.images, **seen.images}
    revision.save()
    return revision


def _find_incarnation(
    workload: Workload, label: str, started_at: datetime | None, members: Sequence[str], now: datetime
) -> Revision | None:
    known = list(Revision.objects.filter(workload=workload, label=label).order_by("-started_at"))
    if not members:
        return known[0] if known else None
    for revision in known:
        # A row without members was recorded before its objects were seen.
        if set(members) & set(revision.members) or revision.started_at == started_at:
            return revision
        if not revision.members and revision.ended_at is None:
            return revision
    for revision in known:
        if revision.ended_at is None:
            revision.ended_at = now
            revision.save(update_fields=["ended_at"])
    return None


def _lock_cluster(cluster_id: int) -> Cluster:
    cluster = Cluster.objects.select_for_update(no_key=True).filter(pk=cluster_id).first()
    if cluster is None:
        raise NotFound("not-found", f"There is no cluster {cluster_id}.")
    return cluster
