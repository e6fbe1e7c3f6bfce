"""The two steps: pause what aims at the set before anything is written, give it back when it is let go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.holds.live import LiveSet, read_live
from controlplane.holds.scalers.mark import Mark, UnreadableMark, mark_of, read_mark
from controlplane.holds.scalers.pausing import (
    GIVE_BACK,
    PAUSE,
    in_the_way,
    kept_of,
    not_paused,
    unreadable,
    wait_for_keda,
)
from controlplane.holds.scalers.seen import Listed, Scaler, list_scalers, name_of, targets_of
from controlplane.holds.scalers.writing import Holder, give_back_scaler, pause_scaler, stir
from controlplane.kube.errors import Denied, Invalid, ObjectMissing
from controlplane.operations.contract import Done, Hold, Outcome, StepContext, Wait
from controlplane.operations.installation import check_installation
from controlplane.operations.models import Operation, Step
from controlplane.operations.orphans import operation_name, running_names

Json = dict[str, Any]

__all__ = ["GIVE_BACK", "PAUSE", "give_back_scalers", "pause_scalers"]
RETRY_EVERY = 5.0


def fence_installation(context: StepContext) -> Hold | None:
    """To fence where a kind of change has no number of its own in the cluster: only the Lease's holder may write. The
    steps' own writes are fenced by what they read: a pause that is there is found, one in flight has read an older
    resourceVersion."""
    return check_installation(context.kube, context.cluster)


def pause_scalers(context: StepContext) -> Outcome:
    """Pause every scaler that aims at the set, and see that KEDA has taken it up."""
    live = _look(context)
    if isinstance(live, Hold):
        return live
    listed = list_scalers(context.kube, live.body["metadata"]["namespace"])
    scalers = listed.aimed_at(targets_of(live))
    if finding := in_the_way(listed, scalers):
        return finding
    kept: Json = dict(context.operation.memory.get("scalers") or {})
    paused = []
    for scaler in scalers:
        try:
            mark = _pause(context, live, scaler)
        except (Denied, Invalid) as error:
            return not_paused(f"The API server does not let {scaler.name} be paused: {error.message}", kept)
        if isinstance(mark, Hold):
            return mark
        if mark is not None:
            kept[scaler.uid] = kept_of(scaler, mark)
            paused.append(scaler.name)
    waited = (context.now - context.first_claimed_at).total_seconds()
    if waiting := wait_for_keda(context.kube, live.body["metadata"]["namespace"], kept, waited=waited):
        return waiting
    still = [each.name for each in scalers if each.uid not in kept]
    return Done(result={"paused": paused, "standing_still": still}, remember={"scalers": kept})


def _look(context: StepContext) -> LiveSet | Hold:
    memory = context.operation.memory
    try:
        live = read_live(context.kube, memory["namespace"], memory["name"])
    except ObjectMissing as error:
        if error.api_missing:
            raise
        live = None
    if live is None or live.body["metadata"]["uid"] != memory["uid"]:
        return Hold(
            "set-gone",
            f"{memory['namespace']}/{memory['name']} no longer exists, or is another set of that name.",
            "Abort: nothing of the approved set is left.",
        )
    return live


def _pause(context: StepContext, live: LiveSet, scaler: Scaler) -> Mark | Hold | None:
    try:
        standing = mark_of(scaler.body)
    except UnreadableMark as error:
        return unreadable(error)
    if standing is not None and is_ours(context, standing):
        return standing
    if standing is not None and _is_running(context, standing):
        return Hold(
            "foreign-pause",
            f"{scaler.name} is paused for {standing.operation}, which is running.",
            "Wait for that operation to end, then retry; or abort.",
        )
    stored = pause_scaler(context.kube, scaler, _holder(context, live), inherited=standing)
    if stored is None:
        return None
    mark = mark_of(stored)
    if mark is not None and _too_late(context):
        give_back_scaler(context.kube, stored, mark)
    return mark


def _holder(context: StepContext, live: LiveSet) -> Holder:
    metadata = live.body["metadata"]
    return Holder(
        operation=operation_name(context.operation.id),
        installation=str(context.operation.memory["installation"]),
        fence=context.fence,
        set={"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
    )


def is_ours(context: StepContext, mark: Mark) -> bool:
    """Whether a scaler is paused for this very operation."""
    mine = (operation_name(context.operation.id), str(context.operation.memory["installation"]))
    return (mark.operation, mark.installation) == mine


def _is_running(context: StepContext, mark: Mark) -> bool:
    if mark.installation != str(context.operation.memory["installation"]):
        return False  # it may not write here any more: what it has paused is inherited
    return mark.operation in running_names(context.cluster.pk)


def _too_late(context: StepContext) -> bool:
    """A pause carries no number that the API server would refuse: after a long sleep between the look and the write it
    may come when the operation has turned back or ended. Where the operation goes on, its next claim finds it."""
    going_on = Operation.objects.unfinished().filter(pk=context.operation.id, phase=Operation.Phase.FORWARD)
    return not context.still_ours() and not going_on.exists()


def give_back_scalers(context: StepContext) -> Outcome:
    """Put back what pausing changed on every scaler that this operation has paused or inherited. What somebody changed
    meanwhile stays, and is said. A refusal of the API server is waited out, in sight."""
    memory = context.operation.memory
    kept: Mapping[str, Json] = memory.get("scalers") or {}
    listed = list_scalers(context.kube, memory["namespace"])
    if listed.unread and kept:
        what = f"the right to list {', '.join(listed.unread)}: scalers are to be given back"
        return Wait(RETRY_EVERY, what, who="operators")
    about_to_be_paused = _about_to_be_paused(context, listed)
    given, findings, refused = [], [], []
    for body in listed.own:
        mark = _mark_to_give_back(context, body, kept)
        try:
            if mark is not None:
                findings.append(give_back_scaler(context.kube, body, mark))
                given.append(name_of(body))
            elif body["metadata"]["uid"] in about_to_be_paused:
                stir(context.kube, body, context.fence)
        except (Denied, Invalid) as error:
            refused.append(f"{name_of(body)} ({error.message[:300]})")
    if refused:
        what = f"the API server to take scalers back as they were: {'; '.join(refused)}"
        return Wait(RETRY_EVERY, what, who="operators")
    there = {body["metadata"]["uid"] for body in listed.bodies}
    gone = [f"{each['kind']} {each['name']}" for uid, each in kept.items() if uid not in there]
    changed = [each for each in findings if each]
    return Done(
        result={"given_back": given, "gone": gone, "findings": changed},
        remember={"scalers": {}, "scaler_findings": changed},
    )


def _mark_to_give_back(context: StepContext, body: Json, kept: Mapping[str, Json]) -> Mark | None:
    """Our record on the object, or one that somebody has left there for our set (it may aim at a revision that is gone,
    so that pausing has not seen it), else what we remember of it."""
    try:
        mark = mark_of(body)
    except UnreadableMark:
        mark = None
    if mark is not None and (is_ours(context, mark) or _is_left(context, mark)):
        return mark
    remembered = kept.get(body["metadata"]["uid"])
    return read_mark(body["kind"], remembered) if remembered else None


def _is_left(context: StepContext, mark: Mark) -> bool:
    return mark.set["uid"] == context.operation.memory["uid"] and not _is_running(context, mark)


def _about_to_be_paused(context: StepContext, listed: Listed) -> set[str]:
    """Scalers that a pause may still be in flight for, where the pausing step was begun and never finished."""
    begun = Step.objects.filter(
        operation_id=context.operation.id, name=PAUSE, first_claimed_at__isnull=False
    ).exclude(state=Step.State.DONE)
    if not begun.exists() or isinstance(live := _look(context), Hold):
        return set()
    aimed = listed.aimed_at(targets_of(live))
    return {each.uid for each in aimed if each.pause.settings and not each.pause.problem}
