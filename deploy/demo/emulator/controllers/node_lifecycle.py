"""What the control plane makes of lost and deleted nodes: not ready, tainted, and in the end their pods go.

A kubelet is lost when its node carries the annotation ``rig.lockstep.dev/kubelet: gone`` (behaviours.KUBELET).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.behaviours import KUBELET
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import NODES, PODS, annotations_of, condition, is_ready, where
from deploy.demo.emulator.controllers.placing import toleration
from deploy.demo.emulator.controllers.pod_status import readiness
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.settings import Times
from deploy.demo.emulator.requests import service_account

Doc = dict[str, Any]
UNREACHABLE = "node.kubernetes.io/unreachable"
_EFFECTS = ("NoSchedule", "NoExecute")


class NodeLifecycle(Controller):
    """One node at a time."""

    name = "node-controller"
    user = service_account("kube-system", "node-controller")
    watches = (NODES, PODS)

    def __init__(self, times: Times) -> None:
        self._times = times
        self._lost: dict[str, float] = {}
        self._tainted: dict[str, float] = {}

    def begin(self) -> None:
        """A new run counts anew."""
        self._lost.clear()
        self._tainted.clear()

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A node, or that of a pod."""
        name = doc["metadata"]["name"] if kind == NODES else doc["spec"].get("nodeName")
        return [("", name)] if name else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Follow one node into its loss, or back out of it."""
        node = hands.find(NODES, *key)
        if node is None:
            for pod in self._pods(hands, key[1]):
                await hands.delete(PODS, *where(pod), uid=pod["metadata"]["uid"], grace_s=0)
            return None
        if annotations_of(node).get(KUBELET) != "gone":
            self._lost.pop(key[1], None)
            self._tainted.pop(key[1], None)
            if condition(node, "Ready").get("status") == "True":
                await self._taint(hands, node, lost=False)
            return None
        now = asyncio.get_running_loop().time()
        left = self._lost.setdefault(key[1], now) + self._times.node_grace_s - now
        if left > 0:
            return left
        await self._give_up(hands, node)
        return await self._evict(hands, node, now - self._tainted.setdefault(key[1], now))

    @staticmethod
    def _pods(hands: Hands, node: str) -> list[Doc]:
        return [pod for pod in hands.list(PODS) if pod["spec"].get("nodeName") == node]

    async def _give_up(self, hands: Hands, node: Doc) -> None:
        await self._taint(hands, node, lost=True)
        now = hands.now
        if condition(node, "Ready").get("status") != "Unknown":
            conditions = [
                {
                    **each,
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": now,
                }
                for each in (node.get("status") or {}).get("conditions") or ()
            ]
            await hands.write_status(NODES, *where(node), {"conditions": conditions})
            await hands.event(node, "NodeNotReady", f"Node {node['metadata']['name']} is not ready any more")
        for pod in self._pods(hands, node["metadata"]["name"]):
            if is_ready(pod):
                conditions = readiness(pod, now, ready=False)
                await hands.write_status(PODS, *where(pod), {"conditions": conditions})

    async def _taint(self, hands: Hands, node: Doc, *, lost: bool) -> None:
        taints = list((node.get("spec") or {}).get("taints") or ())
        kept = [each for each in taints if each["key"] != UNREACHABLE]
        wanted = [*kept, *({"key": UNREACHABLE, "effect": effect} for effect in _EFFECTS)] if lost else kept
        if wanted != taints:
            await hands.patch(NODES, *where(node), {"spec": {"taints": wanted or None}})

    async def _evict(self, hands: Hands, node: Doc, since: float) -> float | None:
        """Pods are asked to go when they have tolerated it long enough; nobody is there to end them."""
        waits = []
        for pod in self._pods(hands, node["metadata"]["name"]):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            tolerated = toleration(pod["spec"], {"key": UNREACHABLE, "effect": "NoExecute"})
            limit = self._times.eviction_s if tolerated is None else tolerated.get("tolerationSeconds")
            if limit is None:
                continue
            # The API server gives every pod 300 s: those are the setting's.
            left = (self._times.eviction_s if limit == 300 else limit) - since
            if left <= 0:
                await hands.delete(PODS, *where(pod), uid=pod["metadata"]["uid"])
            else:
                waits.append(left)
        return min(waits) if waits else None
