"""The groups of a LeaderWorkerSet: workers behind each leader, and the end of a group of which a pod restarted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.disaggregated import MANAGER
from deploy.demo.emulator.controllers.group_sets import hash_of, pod_template, size_of
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    EXCLUSIVE,
    GROUP_INDEX,
    GROUP_KEY,
    GROUP_SETS,
    LEADER_NAME,
    LWS_NAME,
    NODES,
    PODS,
    STATEFUL_SETS,
    TEMPLATE_HASH,
    WORKER_INDEX,
    annotations_of,
    is_ready,
    labels_of,
    owned_by,
    owner_reference,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key

Doc = dict[str, Any]
_RECREATE = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart")


class GroupPods(Controller):
    """One pod of a group at a time."""

    name = "leaderworkerset-pods"
    user = MANAGER
    watches = (PODS, STATEFUL_SETS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A pod of a group; a leader also when something is wrong with its StatefulSet of workers."""
        if LWS_NAME not in labels_of(doc):
            return []
        if kind == PODS:
            return [where(doc)]
        leader = owned_by(doc, "Pod")
        return [leader] if leader else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Look after one pod."""
        pod = hands.find(PODS, *key)
        if pod is None:
            return None
        group_set = hands.find(GROUP_SETS, key[0], labels_of(pod)[LWS_NAME])
        if group_set is None or "deletionTimestamp" in group_set["metadata"]:
            return None
        if await self._end_group(hands, pod, group_set):
            return None
        if labels_of(pod).get(WORKER_INDEX) == "0" and "deletionTimestamp" not in pod["metadata"]:
            await self._workers(hands, pod, group_set)
        return None

    async def _end_group(self, hands: Hands, pod: Doc, group_set: Doc) -> bool:
        """Delete the leader (its workers follow it) where a container restarted or a pod goes."""
        if group_set["spec"]["leaderWorkerTemplate"].get("restartPolicy") not in _RECREATE:
            return False
        if not _restarted(pod) and "deletionTimestamp" not in pod["metadata"]:
            return False
        leader = pod
        if labels_of(pod).get(WORKER_INDEX) != "0":
            found = self._leader_of(hands, pod)
            if found is None or labels_of(found).get(TEMPLATE_HASH) != labels_of(pod).get(TEMPLATE_HASH):
                return False
            leader = found
        if "deletionTimestamp" in leader["metadata"]:
            return True
        await hands.delete(PODS, *where(leader), propagation="Foreground", uid=leader["metadata"]["uid"])
        message = (
            f"{pod['metadata']['name']} failed, so its group is made anew: {leader['metadata']['name']} goes"
        )
        await hands.event(group_set, "RecreateGroup", message)
        return True

    @staticmethod
    def _leader_of(hands: Hands, pod: Doc) -> Doc | None:
        """The leader of a worker, where the worker belongs to the present group of that name."""
        owner = owned_by(pod, "StatefulSet")
        workers = hands.find(STATEFUL_SETS, *owner) if owner else None
        named = owned_by(workers, "Pod") if workers else None
        leader = hands.find(PODS, *named) if named else None
        if workers is None or leader is None:
            return None
        owners = [each["uid"] for each in workers["metadata"]["ownerReferences"]]
        own = [each["uid"] for each in pod["metadata"]["ownerReferences"]]
        return leader if leader["metadata"]["uid"] in owners and workers["metadata"]["uid"] in own else None

    async def _workers(self, hands: Hands, leader: Doc, group_set: Doc) -> None:
        """The StatefulSet of workers of one leader."""
        size = size_of(group_set)
        if size == 1 or labels_of(leader).get(TEMPLATE_HASH) != hash_of(group_set):
            return
        if group_set["spec"].get("startupPolicy") == "LeaderReady" and not is_ready(leader):
            return
        if hands.find(STATEFUL_SETS, *where(leader)) is not None:
            return
        topology = annotations_of(leader).get(EXCLUSIVE)
        selector = self._same_domain(hands, leader, topology) if topology else {}
        if selector is None:
            return
        await hands.create(_workers_of(leader, group_set, selector))
        await hands.event(
            group_set, "GroupsProgressing", f"The workers of {leader['metadata']['name']} are created"
        )

    @staticmethod
    def _same_domain(hands: Hands, leader: Doc, topology: str) -> dict[str, str] | None:
        """Where workers of an exclusive group must be; None while their leader has no node."""
        node = hands.find(NODES, "", leader["spec"].get("nodeName", ""))
        value = labels_of(node).get(topology) if node else None
        return {topology: value} if value else None


def _restarted(pod: Doc) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") not in ("Running", "Pending"):
        return False
    entries = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any(each.get("restartCount", 0) > 0 for each in entries)


def _workers_of(leader: Doc, group_set: Doc, selector: dict[str, str]) -> Doc:
    """The StatefulSet of a leader's workers, on nodes that the selector allows."""
    namespace, name = where(leader)
    group = {key: labels_of(leader)[key] for key in (GROUP_INDEX, GROUP_KEY) if key in labels_of(leader)}
    template = pod_template(
        group_set,
        group_set["spec"]["leaderWorkerTemplate"]["workerTemplate"],
        labels=group,
        annotations={LEADER_NAME: name},
    )
    if selector:
        template["spec"]["nodeSelector"] = {**(template["spec"].get("nodeSelector") or {}), **selector}
    labels = {LWS_NAME: group_set["metadata"]["name"], **group}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, TEMPLATE_HASH: hash_of(group_set)},
            "ownerReferences": [owner_reference(leader, blocks=True)],
        },
        "spec": {
            "ordinals": {"start": 1},
            "podManagementPolicy": "Parallel",
            "replicas": size_of(group_set) - 1,
            "selector": {"matchLabels": labels},
            "serviceName": group_set["metadata"]["name"],
            "template": template,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
    }
