"""The kubelets of all nodes: what becomes of a pod once it is on one, told by its behaviour.

Nothing runs. A pod whose image is a program only gets its address here and is the runner's from then on
(deploy/rig/runner, which knows such pods by a condition).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers import pod_status
from deploy.demo.emulator.controllers.behaviours import KUBELET, Behaviour, behaviour_of
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.images import Images
from deploy.demo.emulator.controllers.names import (
    NODES,
    PODS,
    annotations_of,
    condition,
    controller_of,
    is_ready,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.settings import Settings
from deploy.demo.emulator.requests import User

Doc = dict[str, Any]


def kubelet_user(node: str) -> User:
    """The user that the kubelet of a node is."""
    return User(f"system:node:{node}", ("system:nodes",))


class Addresses:
    """Pod addresses of one range, each given to one pod at a time, the longest unused first."""

    def __init__(self, cidr: str) -> None:
        first = ipaddress.ip_interface(cidr)
        self._network = first.network
        self._next = int(first.ip)
        self._last = int(first.network.broadcast_address) - 1

    def give(self, taken: set[str]) -> str:
        """An address that no pod has."""
        for _ in range(self._network.num_addresses):
            address = str(ipaddress.ip_address(self._next))
            self._next = self._next + 1 if self._next < self._last else int(self._network.network_address) + 1
            if address not in taken:
                return address
        raise RuntimeError(f"no address of {self._network} is free")


class Kubelets(Controller):
    """One pod at a time. ``images`` says what stands behind their tags."""

    name = "kubelet"
    user = User("system:node:kubelets", ("system:nodes",))
    watches = (PODS, NODES)

    def __init__(self, settings: Settings, images: Images) -> None:
        self._times = settings.times
        self._programs = settings.programs
        self._images = images
        self._addresses = Addresses(settings.pod_cidr)
        self._entered: dict[str, tuple[str, float]] = {}
        self._on_node: dict[str, set[Key]] = {}

    def begin(self) -> None:
        """A new run measures times anew."""
        self._entered.clear()
        self._on_node.clear()

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A pod; every pod of a node whose kubelet comes or goes."""
        if kind == NODES:
            return self._on_node.get(doc["metadata"]["name"], ())
        node = doc["spec"].get("nodeName")
        if not node:
            return ()
        self._on_node.setdefault(node, set()).add(where(doc))
        return [where(doc)]

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Bring one pod forward; returns when its next moment comes."""
        pod = hands.find(PODS, *key)
        if pod is None or not pod["spec"].get("nodeName"):
            self._forget(key, hands)
            return None
        node = hands.find(NODES, "", pod["spec"]["nodeName"])
        if node is None or annotations_of(node).get(KUBELET) == "gone":
            return None
        behaviour = behaviour_of(pod, self._times, self._programs)
        stage, delay = self._stage(pod, behaviour)
        if not stage:
            return None
        left = self._left(pod, stage, delay)
        if left > 0:
            return left
        await self._act(
            hands.by(kubelet_user(node["metadata"]["name"]), "kubelet"), pod, node, stage, behaviour
        )
        return None

    def _forget(self, key: Key, hands: Hands) -> None:
        for pods in self._on_node.values():
            pods.discard(key)
        alive = {pod["metadata"]["uid"] for pod in hands.list(PODS)} if len(self._entered) > 1000 else None
        if alive is not None:
            self._entered = {uid: entry for uid, entry in self._entered.items() if uid in alive}

    def _left(self, pod: Doc, stage: str, delay: float) -> float:
        """Seconds until a stage is over; it began when it was first seen."""
        now = asyncio.get_running_loop().time()
        uid = pod["metadata"]["uid"]
        known = self._entered.get(uid)
        if known is None or known[0] != stage:
            self._entered[uid] = known = (stage, now)
        return known[1] + delay - now

    def _stage(self, pod: Doc, behaviour: Behaviour) -> tuple[str, float]:
        """What happens to a pod next and how long it takes until then; "" when nothing does."""
        status = pod.get("status") or {}
        entries = status.get("containerStatuses") or []
        kind = behaviour.kind
        if "deletionTimestamp" in pod["metadata"]:
            if kind == "program" and entries:
                return "", 0.0  # its runner ends it
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            return "end", min(behaviour.end_s, grace) if kind != "program" else 0.0
        if not entries:
            return "first", self._times.start_s
        if kind in ("program", "pull-error", "never-ready") or status.get("phase") != "Running":
            return "", 0.0
        if kind == "crash":
            return ("restart" if "waiting" in entries[0]["state"] else "crash"), behaviour.period_s
        if kind == "flicker" and entries[0].get("started"):
            return ("down" if is_ready(pod) else "up"), behaviour.period_s
        if not entries[0].get("started"):
            return "ready", behaviour.ready_s
        if (controller_of(pod) or {}).get("kind") == "Job":
            return "complete", self._times.job_s
        return "", 0.0

    async def _act(self, hands: Hands, pod: Doc, node: Doc, stage: str, behaviour: Behaviour) -> None:
        namespace, name = where(pod)
        if stage == "end":
            await hands.delete(PODS, namespace, name, uid=pod["metadata"]["uid"], grace_s=0)
            return
        now = hands.now
        match stage:
            case "first":
                status = self._first(hands, pod, node, behaviour)
                if status["phase"] == "Running" and behaviour.ready_s <= 0 and behaviour.kind in _AT_ONCE:
                    status.update(pod_status.ready_status({"status": status}, now, ready=True))
            case "ready" | "up" | "down":
                status = pod_status.ready_status(pod, now, ready=stage != "down")
            case "crash":
                stays_down = pod["spec"].get("restartPolicy", "Always") == "Never"
                status = pod_status.crashed_status(pod, now, stays_down=stays_down)
            case "restart":
                status = pod_status.restarted_status(pod, now)
            case _:
                status = pod_status.completed_status(pod, now)
        await hands.write_status(PODS, namespace, name, status)

    def _first(self, hands: Hands, pod: Doc, node: Doc, behaviour: Behaviour) -> Doc:
        kind = behaviour.kind if behaviour.kind in ("program", "pull-error") else "running"
        taken = {str((each.get("status") or {}).get("podIP")) for each in hands.list(PODS)}
        addresses = (node.get("status") or {}).get("addresses") or ()
        host = next((each["address"] for each in addresses if each["type"] == "InternalIP"), "")
        address = self._addresses.give(taken)
        return pod_status.first_status(pod, self._images, hands.now, address=address, host=host, kind=kind)


_AT_ONCE = ("ready", "late", "flicker")


class NodeStatus(Controller):
    """Nodes say that they are ready as soon as they are there, and again when their kubelet comes back."""

    name = "kubelet-node-status"
    user = Kubelets.user
    watches = (NODES,)
    _SAID = {
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    }

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A node."""
        return [where(doc)]

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Write its conditions where they say something else."""
        node = hands.find(NODES, *key)
        if node is None or annotations_of(node).get(KUBELET) == "gone":
            return None
        if condition(node, "Ready").get("status") == "True":
            return None
        now = hands.now
        said = [
            {"type": kind, "status": status, "reason": reason, "message": message}
            for kind, (status, reason, message) in self._SAID.items()
        ]
        conditions = [{**each, "lastHeartbeatTime": now, "lastTransitionTime": now} for each in said]
        own = hands.by(kubelet_user(key[1]), "kubelet")
        await own.write_status(NODES, *key, {"conditions": conditions, "phase": "Running"})
        return None
