"""The Deployment controller: one ReplicaSet for each template, and a rolling update from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    annotations_of,
    condition,
    labels_of,
    owned_by,
    owner_reference,
    seconds_between,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.revision import template_hash
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.requests import service_account
from policy.rollout.pace import groups_of

Doc = dict[str, Any]
_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"


class Deployments(Controller):
    """One Deployment at a time."""

    name = "deployment-controller"
    user = service_account("kube-system", "deployment-controller")
    watches = (DEPLOYMENTS, REPLICA_SETS, PODS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A Deployment, or the owner of a ReplicaSet; pods count where the update waits for them to be gone."""
        if kind == DEPLOYMENTS:
            return [where(doc)]
        if kind == PODS:
            name = owned_by(doc, "ReplicaSet")
            return [(name[0], name[1].rpartition("-")[0])] if name else []
        owner = owned_by(doc, "Deployment")
        return [owner] if owner else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """One step of the update, then the status."""
        owner = hands.find(DEPLOYMENTS, *key)
        if owner is None:
            return None
        if "deletionTimestamp" not in owner["metadata"]:
            await self._step(hands, owner)
        return await self._status(hands, owner)

    async def _step(self, hands: Hands, owner: Doc) -> None:
        sets = _sets(hands, owner)
        label = _label(owner)
        new = next((each for each in sets if labels_of(each).get(_HASH) == label), None)
        old = [each for each in sets if each is not new]
        if owner["spec"].get("paused"):
            return
        wanted = owner["spec"].get("replicas", 1)
        recreate = (owner["spec"].get("strategy") or {}).get("type") == "Recreate"
        if new is None:
            new = await self._create(hands, owner, label, sets)
        elif _number(new) < max(map(_number, sets)):
            number = str(max(map(_number, sets)) + 1)
            body = {"metadata": {"annotations": {_REVISION: number}}}
            new = await hands.patch(REPLICA_SETS, *where(new), body)
        if annotations_of(owner).get(_REVISION) != str(_number(new)):
            body = {"metadata": {"annotations": {_REVISION: str(_number(new))}}}
            await hands.patch(DEPLOYMENTS, *where(owner), body)
        if recreate:
            await self._recreate(hands, owner, new, old, wanted)
        else:
            await self._roll(hands, owner, new, old, wanted)
        await self._forget(hands, owner, old)

    async def _create(self, hands: Hands, owner: Doc, label: str, sets: Sequence[Doc]) -> Doc:
        namespace, name = where(owner)
        template: Doc = thaw(owner["spec"]["template"])
        metadata = template["metadata"] = dict(template.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), _HASH: label}
        selector: Doc = thaw(owner["spec"]["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: label}
        number = max(map(_number, sets), default=0) + 1
        made = await hands.create(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": f"{name}-{label}",
                    "namespace": namespace,
                    "labels": metadata["labels"],
                    "annotations": {_REVISION: str(number)},
                    "ownerReferences": [owner_reference(owner, blocks=True)],
                },
                "spec": {"replicas": 0, "selector": selector, "template": template},
            }
        )
        return made

    async def _recreate(self, hands: Hands, owner: Doc, new: Doc, old: Sequence[Doc], wanted: int) -> None:
        for each in old:
            await self._scale(hands, owner, each, 0)
        if not any(hands.dependents(each["metadata"]["uid"], PODS) for each in old):
            await self._scale(hands, owner, new, wanted)

    async def _roll(self, hands: Hands, owner: Doc, new: Doc, old: Sequence[Doc], wanted: int) -> None:
        surge, unavailable = _pace(owner, wanted)
        now, least = _replicas(new), wanted - unavailable
        room = wanted + surge - sum(map(_replicas, old)) - now
        grown = wanted if now > wanted else min(wanted, now + max(0, room))
        await self._scale(hands, owner, new, grown)
        # Pods of the new template that are not there yet keep as many old ones alive.
        limit = sum(map(_replicas, old)) + min(grown, _available(new)) - least
        left = {each["metadata"]["name"]: _replicas(each) for each in old}
        for each in sorted(old, key=_number):
            # What never became ready serves nobody: it goes first.
            name = each["metadata"]["name"]
            broken = min(max(0, limit), max(0, left[name] - _available(each)))
            left[name] -= broken
            limit -= broken
        spare = _available(new) + sum(map(_available, old)) - least
        for each in sorted(old, key=_number):
            name = each["metadata"]["name"]
            taken = min(left[name], max(0, min(spare, limit)))
            left[name] -= taken
            spare, limit = spare - taken, limit - taken
            await self._scale(hands, owner, each, left[name])

    async def _scale(self, hands: Hands, owner: Doc, replica_set: Doc, replicas: int) -> None:
        if _replicas(replica_set) == replicas:
            return
        name = replica_set["metadata"]["name"]
        verb = "up" if replicas > _replicas(replica_set) else "down"
        await hands.patch(REPLICA_SETS, *where(replica_set), {"spec": {"replicas": replicas}})
        message = f"Scaled {verb} replica set {name} from {_replicas(replica_set)} to {replicas}"
        await hands.event(owner, "ScalingReplicaSet", message)

    async def _forget(self, hands: Hands, owner: Doc, old: Sequence[Doc]) -> None:
        """Keep the newest empty ReplicaSets, as the way back."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        empty = [
            each for each in old if not _replicas(each) and not (each.get("status") or {}).get("replicas")
        ]
        for each in sorted(empty, key=_number)[: max(0, len(empty) - limit)]:
            await hands.delete(REPLICA_SETS, *where(each))

    async def _status(self, hands: Hands, owner: Doc) -> float | None:
        """Write it; returns after how many seconds the update would be given up."""
        sets = _sets(hands, owner)
        wanted = owner["spec"].get("replicas", 1)
        label = _label(owner)
        available = sum(_available(each) for each in sets)
        fresh = [each for each in sets if labels_of(each).get(_HASH) == label]
        status: Doc = {
            "replicas": sum(_count(each, "replicas") for each in sets),
            "updatedReplicas": sum(_count(each, "replicas") for each in fresh),
            "readyReplicas": available,
            "availableReplicas": available,
        }
        status["unavailableReplicas"] = max(0, max(wanted, status["replicas"]) - available)
        done = (
            status["updatedReplicas"] == status["replicas"] == wanted
            and sum(map(_available, fresh)) == wanted
        )
        _, unavailable = _pace(owner, wanted)
        before = {key: (owner.get("status") or {}).get(key, 0) for key in status}
        left_before = before["replicas"] - before["updatedReplicas"]
        moved = (
            status["updatedReplicas"] > before["updatedReplicas"]
            or available > before["availableReplicas"]
            or status["replicas"] - status["updatedReplicas"] < left_before
        )
        now = hands.now
        progress, left = _progress(owner, done=done, moved=moved, now=now)
        enough = available >= wanted - unavailable
        reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
        status["conditions"] = [_condition(owner, "Available", enough, reason, now), progress]
        status["observedGeneration"] = owner["metadata"]["generation"]
        await hands.write_status(DEPLOYMENTS, *where(owner), status)
        return left


def _progress(owner: Doc, *, done: bool, moved: bool, now: str) -> tuple[Doc, float | None]:
    """The condition Progressing, and the seconds until nothing but waiting makes it False."""
    if done:
        return _condition(owner, "Progressing", True, "NewReplicaSetAvailable", now), None
    was = condition(owner, "Progressing")
    deadline = owner["spec"].get("progressDeadlineSeconds", 600)
    observed = (owner.get("status") or {}).get("observedGeneration") == owner["metadata"]["generation"]
    still = bool(was) and observed and not moved and was.get("reason") != "NewReplicaSetAvailable"
    since = was["lastUpdateTime"] if still else now
    left = float(deadline - seconds_between(since, now))
    if still and (left <= 0 or was["status"] == "False"):
        return _condition(owner, "Progressing", False, "ProgressDeadlineExceeded", now), None
    made = _condition(owner, "Progressing", True, "ReplicaSetUpdated", now)
    # Times are whole seconds: one more, so that the deadline has passed when it is looked at again.
    return {**made, "lastUpdateTime": since}, left + 1


def _sets(hands: Hands, owner: Doc) -> list[Doc]:
    return hands.dependents(owner["metadata"]["uid"], REPLICA_SETS)


def _label(owner: Doc) -> str:
    return template_hash(owner["spec"]["template"])


def _replicas(doc: Doc) -> int:
    return int(doc["spec"].get("replicas", 1))


def _count(doc: Doc, field: str) -> int:
    return int((doc.get("status") or {}).get(field, 0))


def _available(doc: Doc) -> int:
    return _count(doc, "availableReplicas")


def _number(doc: Doc) -> int:
    """Which template of its Deployment this is, counted from the first."""
    return int(annotations_of(doc).get(_REVISION, "0"))


def _pace(owner: Doc, wanted: int) -> tuple[int, int]:
    """How many more and how many fewer pods a rolling update may have."""
    strategy = owner["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = groups_of(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = groups_of(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _condition(owner: Doc, kind: str, true: bool, reason: str, now: str) -> Doc:
    was = condition(owner, kind)
    state = str(true)
    same = was.get("status") == state
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": "",
        "lastTransitionTime": was["lastTransitionTime"] if same else now,
        "lastUpdateTime": was["lastUpdateTime"] if same and was.get("reason") == reason else now,
    }
