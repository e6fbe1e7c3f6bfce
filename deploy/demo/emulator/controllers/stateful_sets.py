"""The StatefulSet controller: numbered pods, each made anew under its own name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    PODS,
    STATEFUL_SETS,
    is_ready,
    labels_of,
    ordinal_of,
    owned_by,
    owner_reference,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.revision import template_hash
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.requests import service_account

Doc = dict[str, Any]
_HASH = "controller-revision-hash"


class StatefulSets(Controller):
    """One StatefulSet at a time."""

    name = "statefulset-controller"
    user = service_account("kube-system", "statefulset-controller")
    watches = (STATEFUL_SETS, PODS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A StatefulSet, or the owner of a pod."""
        if kind == STATEFUL_SETS:
            return [where(doc)]
        owner = owned_by(doc, "StatefulSet")
        return [owner] if owner else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Create, delete and replace pods, then write the status."""
        stateful = hands.find(STATEFUL_SETS, *key)
        if stateful is None:
            return None
        if "deletionTimestamp" not in stateful["metadata"]:
            await self._pods(hands, stateful)
        await self._status(hands, stateful)
        return None

    async def _pods(self, hands: Hands, stateful: Doc) -> None:
        spec = stateful["spec"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        wanted = range(start, start + spec.get("replicas", 1))
        pods = {ordinal_of(pod["metadata"]["name"]): pod for pod in _own(hands, stateful)}
        in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for number in wanted:
            pod = pods.get(number)
            if pod is None:
                await hands.create(_pod(stateful, number))
            elif (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                await self._delete(hands, pod)
            if in_order and (pod is None or not is_ready(pod)):
                return
        for number in sorted(set(pods) - set(wanted), reverse=True):
            await self._delete(hands, pods[number])
            if in_order:
                return
        await self._replace_outdated(hands, stateful, [pods[number] for number in wanted if number in pods])

    async def _replace_outdated(self, hands: Hands, stateful: Doc, pods: list[Doc]) -> None:
        """A changed template: the highest number first, the next one when all others are ready."""
        if (stateful["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        rolling = (stateful["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        label = _revision(stateful)
        for pod in reversed(pods):
            number = ordinal_of(pod["metadata"]["name"])
            if labels_of(pod).get(_HASH) != label and number >= rolling.get("partition", 0):
                await self._delete(hands, pod)
                return
            if not is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
                return

    async def _delete(self, hands: Hands, pod: Doc) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            await hands.delete(PODS, *where(pod), uid=pod["metadata"]["uid"])

    async def _status(self, hands: Hands, stateful: Doc) -> None:
        pods = _own(hands, stateful)
        ready = sum(is_ready(pod) for pod in pods)
        label = _revision(stateful)
        updated = sum(labels_of(pod).get(_HASH) == label for pod in pods)
        before = (stateful.get("status") or {}).get("currentRevision")
        outdated = [pod for pod in pods if labels_of(pod).get(_HASH) != label]
        current = before if before and outdated else label
        await hands.write_status(
            STATEFUL_SETS,
            *where(stateful),
            {
                "replicas": len(pods),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "updatedReplicas": updated,
                "currentReplicas": sum(labels_of(pod).get(_HASH) == current for pod in pods),
                "currentRevision": current,
                "updateRevision": label,
                "observedGeneration": stateful["metadata"]["generation"],
                "collisionCount": 0,
            },
        )


def _own(hands: Hands, stateful: Doc) -> list[Doc]:
    return hands.dependents(stateful["metadata"]["uid"], PODS)


def _revision(stateful: Doc) -> str:
    name = stateful["metadata"]["name"]
    return f"{name}-{template_hash(name, stateful['spec']['template'])}"


def _pod(stateful: Doc, number: int) -> Doc:
    metadata, template = stateful["metadata"], stateful["spec"]["template"]
    name = f"{metadata['name']}-{number}"
    made: Doc = thaw({"metadata": template.get("metadata") or {}, "spec": template["spec"]})
    own = made["metadata"]
    own.update(name=name, namespace=metadata["namespace"], generateName=f"{metadata['name']}-")
    own["labels"] = {
        **(own.get("labels") or {}),
        "apps.kubernetes.io/pod-index": str(number),
        _HASH: _revision(stateful),
        "statefulset.kubernetes.io/pod-name": name,
    }
    own["ownerReferences"] = [owner_reference(stateful, blocks=True)]
    made["spec"].update(hostname=name, subdomain=stateful["spec"].get("serviceName", ""))
    return {"apiVersion": "v1", "kind": "Pod", **made}
