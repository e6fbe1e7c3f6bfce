"""The ReplicaSet controller: as many equal pods as asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    PODS,
    REPLICA_SETS,
    is_active,
    is_ready,
    owned_by,
    owner_reference,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.requests import service_account

Doc = dict[str, Any]


class ReplicaSets(Controller):
    """One ReplicaSet at a time."""

    name = "replicaset-controller"
    user = service_account("kube-system", "replicaset-controller")
    watches = (REPLICA_SETS, PODS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A ReplicaSet, or the owner of a pod."""
        if kind == REPLICA_SETS:
            return [where(doc)]
        owner = owned_by(doc, "ReplicaSet")
        return [owner] if owner else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Create what is missing, delete what is too much (those that are not ready first)."""
        owner = hands.find(REPLICA_SETS, *key)
        if owner is None:
            return None
        pods = [pod for pod in hands.dependents(owner["metadata"]["uid"], PODS) if is_active(pod)]
        wanted = owner["spec"].get("replicas", 1)
        if "deletionTimestamp" not in owner["metadata"]:
            for _ in range(wanted - len(pods)):
                await hands.create(pod_of(owner, owner["spec"]["template"]))
            spare = sorted(pods, key=_first_to_go)[: max(0, len(pods) - wanted)]
            for pod in spare:
                await hands.delete(PODS, *where(pod), uid=pod["metadata"]["uid"])
        pods = [pod for pod in hands.dependents(owner["metadata"]["uid"], PODS) if is_active(pod)]
        ready = sum(is_ready(pod) for pod in pods)
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": owner["metadata"]["generation"],
        }
        await hands.write_status(REPLICA_SETS, *key, status)
        return None


def pod_of(owner: Doc, template: Doc) -> Doc:
    """A pod of a template, with a generated name."""
    made: Doc = thaw({"metadata": template.get("metadata") or {}, "spec": template["spec"]})
    own = made["metadata"]
    own.update(generateName=f"{owner['metadata']['name']}-", namespace=owner["metadata"]["namespace"])
    own["ownerReferences"] = [owner_reference(owner, blocks=True)]
    return {"apiVersion": "v1", "kind": "Pod", **made}


def _first_to_go(pod: Doc) -> tuple[bool, bool, str]:
    """Without a node first, then not ready ones, then the youngest."""
    created = str(pod["metadata"].get("creationTimestamp", ""))
    return (
        bool(pod["spec"].get("nodeName")),
        is_ready(pod),
        "".join(chr(0x10FFFF - ord(each)) for each in created),
    )
