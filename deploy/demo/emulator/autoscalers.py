"""HorizontalPodAutoscalers without metrics: they keep their targets within bounds, and say that they know no more.

They write through /scale as the account of the real controller, so a hold refuses them, and they say so in an Event.
"""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.scale import scale_of
from deploy.demo.emulator.store import Acting, Store, service_account
from deploy.demo.emulator.writes import stamp

Doc = dict[str, Any]
_HPAS = "horizontalpodautoscalers.autoscaling"
SYNC_S = 15.0


class Autoscalers:
    """A part. ``sync_s`` is how often each is looked at; a new or changed one is looked at sooner."""

    name = "horizontal-pod-autoscaler"

    def __init__(self, sync_s: float = SYNC_S) -> None:
        self._sync_s = sync_s

    async def run(self, store: Store, pace: Pace) -> None:
        """Work until cancelled."""
        acting = store.acting_as(
            service_account("kube-system", "horizontal-pod-autoscaler"), manager="kube-controller-manager"
        )
        with store.subscribe(_HPAS) as changes:
            chosen = store.list(_HPAS)
            while True:
                await pace.going()
                for autoscaler in chosen:
                    _look(acting, autoscaler)
                found = [each for each in await changes.next(self._sync_s) if _matters(each.old, each.new)]
                chosen = (
                    [each.new for each in found if each.type != "DELETED"] if found else store.list(_HPAS)
                )


def _matters(old: Doc | None, new: Doc) -> bool:
    """Whether somebody else has changed it: its own status is no reason to look again."""
    return old is None or old["spec"] != new["spec"]


def _look(acting: Acting, seen: Doc) -> None:
    metadata = seen["metadata"]
    where = (metadata["namespace"], metadata["name"])
    autoscaler = acting.find(_HPAS, *where)
    if autoscaler is None:
        return
    target = autoscaler["spec"]["scaleTargetRef"]
    try:
        kind = acting.store.kinds.named(target.get("apiVersion", "v1"), target["kind"])
        scale = scale_of(kind, acting.get(kind, where[0], target["name"])) if kind.scale else None
    except ApiProblem:
        scale = None
    if scale is None:
        _say(
            acting,
            autoscaler,
            able=("False", "FailedGetScale", f"the scale of {target['name']} cannot be read"),
        )
        return
    current = scale["spec"]["replicas"]
    wanted, why = _bounded(autoscaler["spec"], current)
    able = ("True", "SucceededGetScale", "the scale of the target was read")
    if wanted != current:
        able = _scale(acting, autoscaler, (kind.ref, where[0], target["name"]), wanted, why)
    _say(acting, autoscaler, able=able, current=current, wanted=wanted)


def _bounded(spec: Doc, current: int) -> tuple[int, str]:
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    if current == 0:
        return 0, ""  # an autoscaler leaves alone what somebody has set to 0
    if current > most:
        return most, "Current number of replicas above Spec.MaxReplicas"
    if current < least:
        return least, "Current number of replicas below Spec.MinReplicas"
    return current, ""


def _scale(
    acting: Acting, autoscaler: Doc, target: tuple[str, str, str], wanted: int, why: str
) -> tuple[str, str, str]:
    try:
        acting.scale(*target, wanted)
    except ApiProblem as problem:
        said = f"New size: {wanted}; reason: {why}; error: {problem.message}"
        _event(acting, autoscaler, "Warning", "FailedRescale", said)
        return "False", "FailedUpdateScale", f"the target could not be scaled: {problem.message}"
    _event(acting, autoscaler, "Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {why}")
    return "True", "SucceededRescale", f"the target was scaled to {wanted}"


def _event(acting: Acting, autoscaler: Doc, type_: str, reason: str, message: str) -> None:
    metadata = autoscaler["metadata"]
    now = stamp(acting.store.clock())
    acting.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": autoscaler["apiVersion"],
                "kind": autoscaler["kind"],
                **{key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
            },
            "type": type_,
            "reason": reason,
            "message": message,
            "source": {"component": "horizontal-pod-autoscaler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
    )


def _say(
    acting: Acting, autoscaler: Doc, *, able: tuple[str, str, str], current: int = 0, wanted: int = 0
) -> None:
    metadata, now = autoscaler["metadata"], stamp(acting.store.clock())
    blind = ("False", "FailedGetResourceMetric", "there are no metrics here")
    before = {each["type"]: each for each in (autoscaler.get("status") or {}).get("conditions") or ()}
    conditions = []
    for name, (status, reason, message) in (("AbleToScale", able), ("ScalingActive", blind)):
        since = before.get(name, {})
        moved = since.get("lastTransitionTime", now) if since.get("status") == status else now
        conditions.append(
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": moved,
            }
        )
    written = {"currentReplicas": current, "desiredReplicas": wanted, "conditions": conditions}
    acting.write_status(_HPAS, metadata["namespace"], metadata["name"], written)
