"""The scheduler: every pod without a node gets the emptiest one that takes it, or is told why none does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import NODES, PODS, condition, labels_of, where
from deploy.demo.emulator.controllers.placing import Machine, refusals
from deploy.demo.emulator.controllers.pod_status import condition_list
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import User

Doc = dict[str, Any]
_ALL: Key = ("", "all pods")
_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class Scheduler(Controller):
    """All pods that wait, in one go."""

    name = "default-scheduler"
    user = User("system:kube-scheduler")
    watches = (PODS, NODES)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """Whatever changes may give a pod that waits its node."""
        return [_ALL]

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Place what can be placed: the most important first, then the oldest."""
        pods = hands.list(PODS)
        waiting = [pod for pod in pods if _waits(pod)]
        if not waiting:
            return None
        machines = [Machine(node) for node in hands.list(NODES)]
        by_name = {machine.name: machine for machine in machines}
        for pod in pods:
            on = by_name.get(pod["spec"].get("nodeName", ""))
            if on is not None and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                on.put(pod)
        problem: ApiProblem | None = None
        for pod in sorted(waiting, key=_turn):
            try:
                await self._place(hands, pod, machines)
            except ApiProblem as refused:  # one pod that is gone or refused does not hold up the others
                problem = refused
        if problem is not None:
            raise problem
        return None

    async def _place(self, hands: Hands, pod: Doc, machines: list[Machine]) -> None:
        why: Counter[str] = Counter()
        fitting = []
        for machine in machines:
            found = refusals(pod, machine, machines)
            why.update(found)
            if not found:
                fitting.append(machine)
        now = hands.now
        if fitting:
            best = min(fitting, key=lambda each: (each.fullness(), each.name))
            labels = {key: value for key, value in labels_of(best.doc).items() if key in _COPIED}
            await hands.bind(pod, best.name, labels)
            best.put(pod)
            conditions = condition_list(pod, now, {"PodScheduled": (True, "")})
            await hands.write_status(PODS, *where(pod), {"conditions": conditions})
            return
        reasons = ", ".join(f"{number} {text}" for text, number in sorted(why.items()))
        message = f"0/{len(machines)} nodes are available: {reasons}." if machines else "no nodes available"
        if condition(pod, "PodScheduled").get("message") == message:
            return
        conditions = condition_list(pod, now, {"PodScheduled": (False, "Unschedulable")})
        for each in conditions:
            if each["type"] == "PodScheduled":
                each["message"] = message
        await hands.write_status(PODS, *where(pod), {"phase": "Pending", "conditions": conditions})
        await hands.event(pod, "FailedScheduling", message, warning=True)


def _waits(pod: Doc) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", "default-scheduler") == "default-scheduler"
        and "deletionTimestamp" not in pod["metadata"]
        and (pod.get("status") or {}).get("phase", "Pending") == "Pending"
    )


def _turn(pod: Doc) -> tuple[int, str, str, str]:
    metadata = pod["metadata"]
    created = metadata.get("creationTimestamp", "")
    return -int(pod["spec"].get("priority") or 0), created, *where(pod)
