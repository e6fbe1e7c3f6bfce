"""Scalers that nobody gives back any more: found by the record on them, and given back by the sweep.

A rescue that was lost in the middle leaves such records too. It can write no more once an installation has taken the
cluster over, so they are given back then, like those of an ended operation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from controlplane.audit.actor import worker
from controlplane.audit.services import record_event
from controlplane.fleet.models import Cluster
from controlplane.holds.live import read_parameter
from controlplane.holds.parameter import is_holding
from controlplane.holds.scalers.mark import PAUSED, Mark, UnreadableMark, mark_of
from controlplane.holds.scalers.seen import RESOURCES, list_scalers, name_of
from controlplane.holds.scalers.writing import give_back_scaler
from controlplane.kube.client import Kube
from controlplane.kube.errors import Conflict, Denied, Invalid, ObjectMissing
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.installation import check_installation, this_installation
from controlplane.operations.lease import is_rescue
from controlplane.operations.models import FINISHED, Operation, OperationTarget, Run
from controlplane.operations.orphans import running_names
from controlplane.operations.runs import create_run

Json = dict[str, Any]

GIVE_BACK_ORPHANS = "holds.give_back_orphans"
# An operation that has ended with scalers still in its memory, and any cluster at all: a pause that was in flight when
# its operation ended is in nobody's memory.
SOON, SOMETIME = timedelta(seconds=60), timedelta(minutes=10)
_RECENT = timedelta(days=1)


def give_back_orphans(*, kube: Kube | None, now: datetime, cluster_id: int) -> Json:
    """Give back every scaler of a cluster that an ended operation of this installation, or a rescue, has left paused.

    Left alone, and said: those of another installation, and those of a set that is still held (an orphan for a person).
    Returns {given_back, left, findings}. Done over, it finds nothing more."""
    assert kube is not None
    cluster = Cluster.objects.get(pk=cluster_id)
    listed = list_scalers(kube, None)
    # Asked after the look: a rescue whose record was seen has had the Lease, and no run of it takes the Lease twice.
    if finding := check_installation(kube, cluster):
        return {"given_back": [], "left": [finding.sentence], "findings": []}
    given: list[str] = []
    left = [f"this account may not list {plural}" for plural in listed.unread]
    findings: list[Json] = []
    for body in listed.own:
        if PAUSED not in (body["metadata"].get("annotations") or {}):
            continue
        name = f"{body['metadata']['namespace']}/{name_of(body)}"
        try:
            mark = mark_of(body)
            if mark is None or _has_owner(cluster, mark):
                continue
            if why := _not_ours_to_give_back(kube, mark):
                left.append(f"{name}: {why}")
                continue
            found = _give_back(kube, body, mark)
        except UnreadableMark as error:
            left.append(f"{name}: {error}")
        except (Conflict, Denied, Invalid, ObjectMissing) as error:
            left.append(f"{name}: {error.message[:300]}")
        else:
            given.append(name)
            findings += [found] if found else []
            _record(cluster, name, mark, found)
    if not left:
        _forget(cluster)
    return {"given_back": given, "left": left, "findings": findings}


def _give_back(kube: Kube, body: Json, mark: Mark) -> Json | None:
    """Read again after a conflict: the controllers of scalers write their status every few seconds."""
    try:
        return give_back_scaler(kube, body, mark)
    except Conflict:
        metadata = body["metadata"]
        now = kube.get(RESOURCES[body["kind"]], metadata["name"], metadata["namespace"])
        if now["metadata"]["uid"] != metadata["uid"] or mark_of(now) != mark:
            raise
        return give_back_scaler(kube, now, mark)


def _has_owner(cluster: Cluster, mark: Mark) -> bool:
    """Whether an operation of ours runs that has paused it, or that has taken its set (and so inherits the pause)."""
    if not (_is_mine(mark) or is_rescue(mark.installation)):
        return False
    if _is_mine(mark) and mark.operation in running_names(cluster.pk):
        return True
    taken = OperationTarget.objects.filter(cluster=cluster, kind="set", uid=mark.set["uid"], released=False)
    return taken.exists()


def _is_mine(mark: Mark) -> bool:
    return mark.installation == str(this_installation().pk)


def _not_ours_to_give_back(kube: Kube, mark: Mark) -> str:
    if not (_is_mine(mark) or is_rescue(mark.installation)):
        return f"paused for {mark.operation} of another installation ({mark.installation})"
    if is_holding(read_parameter(kube, mark.set["namespace"], mark.set["name"])):
        return f"paused for {mark.operation}, which does not run here, and its set is still held"
    return ""


def _record(cluster: Cluster, name: str, mark: Mark, found: Mapping[str, Any] | None) -> None:
    with brief_transaction():
        record_event(
            actor=worker("sweep"),
            action="scaler.give_back",
            target_kind="scaler",
            target_id=f"{cluster.name}/{name}",
            before=mark.paused,
            after={"original": mark.original, "kept": (found or {}).get("fields", [])},
            reason=f"{mark.operation} has ended.",
            fence=mark.fence,
        )


def _forget(cluster: Cluster) -> None:
    """Nothing is paused for ended operations any more."""
    for operation in _ended_with_scalers().filter(cluster=cluster):
        with brief_transaction():
            row = Operation.objects.select_for_update(no_key=True).get(pk=operation.pk)
            row.memory = {**row.memory, "scalers": {}}
            row.save(update_fields=["memory"])


def _ended_with_scalers() -> Any:
    """Operations that ended lately with scalers in their memory. A superseded one has handed them on."""
    ended = Operation.objects.filter(state__in=FINISHED, finished_at__gt=database_now() - _RECENT)
    return ended.exclude(state="superseded").filter(memory__has_key="scalers").exclude(memory__scalers={})


def left_paused(cluster_id: int) -> list[str]:
    """One sentence for each scaler that the last look found paused and left to a person; shown with the cluster."""
    last = Run.objects.filter(kind=GIVE_BACK_ORPHANS, cluster=cluster_id, state=Run.State.DONE)
    found = last.order_by("-created_at", "-pk").first()
    return list(found.result.get("left") or ()) if found else []


def ask_to_give_back() -> int:
    """Ask a worker to look, cluster by cluster, where it is time to; how many were asked. Of the looks that gave
    nothing back the last one of each cluster is kept: it says what is left."""
    now, asked = database_now(), 0
    in_need = set(_ended_with_scalers().values_list("cluster_id", flat=True))
    for cluster in Cluster.objects.filter(writes=Cluster.Writes.OURS):
        looks = Run.objects.filter(kind=GIVE_BACK_ORPHANS, cluster=cluster)
        pause = SOON if cluster.pk in in_need or left_paused(cluster.pk) else SOMETIME
        if (
            looks.filter(state=Run.State.WAITING).exists()
            or looks.filter(created_at__gt=now - pause).exists()
        ):
            continue
        vain = looks.filter(state=Run.State.DONE, result__given_back=[])
        vain.exclude(pk=vain.order_by("-created_at", "-pk").values("pk")[:1]).delete()
        create_run(kind=GIVE_BACK_ORPHANS, args={"cluster_id": cluster.pk}, cluster=cluster)
        asked += 1
    return asked
