"""After a restore the automation of a set stays paused until a person resumes it (DESIGN 8)."""

from __future__ import annotations

from django.db import transaction

from controlplane import events
from controlplane.access.etags import check_version
from controlplane.access.models import User
from controlplane.access.permissions import require
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused
from controlplane.fleet.models import Cluster
from controlplane.operations.models import AutomationPause


def automation_paused(*, cluster: Cluster, namespace: str, name: str) -> str | None:
    """Why no change of this set may start by itself now, or None. Whoever starts an upgrade asks this first."""
    found = AutomationPause.objects.standing().filter(cluster=cluster, namespace=namespace, name=name).first()
    return f"paused since {found.since:%Y-%m-%d %H:%M} UTC: {found.reason}" if found else None


def pause_automation(
    *, cluster: Cluster, namespace: str, name: str, reason: str, actor: Actor
) -> AutomationPause:
    """Pause the set; one that is paused stays so, with its first reason."""
    with transaction.atomic():
        found, made = AutomationPause.objects.get_or_create(
            cluster=cluster,
            namespace=namespace,
            name=name,
            resumed_at=None,
            defaults={"reason": reason[:300], "since": database_now()},
        )
        if made:
            _tell(found, actor, "automation.pause", reason)
    return found


def resume_automation(
    *, pause_id: int, version: int, reason: str, user: User, actor: Actor
) -> AutomationPause:
    """A person lets changes start again. Raises NotFound, StaleEdit, Refused `already-resumed`."""
    with transaction.atomic():
        found = (
            AutomationPause.objects.select_for_update(no_key=True, of=("self",))
            .select_related("cluster")
            .filter(pk=pause_id)
            .first()
        )
        if found is None:
            raise NotFound("not-found", f"There is no pause {pause_id}.")
        check_version(expected=version, actual=found.version)
        require(user, "combination.manage", cluster=found.cluster.name, namespace=found.namespace)
        if found.resumed_at is not None:
            raise Refused("already-resumed", "Automation of this set has been resumed already.")
        found.resumed_at, found.resumed_by = database_now(), user
        found.version += 1
        found.save()
        _tell(found, actor, "automation.resume", reason)
    return found


def _tell(found: AutomationPause, actor: Actor, action: str, reason: str) -> None:
    record_event(
        actor=actor,
        action=action,
        target_kind="workload",
        target_id=f"{found.cluster.name}/{found.namespace}/{found.name}",
        after={"since": found.since.isoformat(), "resumed": found.resumed_at is not None},
        reason=reason,
    )
    events.publish(event="automation-changed", object_kind="automation-pause", object_id=str(found.pk))
