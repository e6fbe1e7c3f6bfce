"""The LeaderWorkerSet controller: a StatefulSet of leaders, a headless Service, status. Workers: ``group_pods``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.disaggregated import MANAGER
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    EXCLUSIVE,
    GROUP_INDEX,
    GROUP_SETS,
    LWS_NAME,
    LWS_REPLICAS,
    PODS,
    SERVICES,
    SIZE,
    STATEFUL_SETS,
    SUBDOMAIN_POLICY,
    TEMPLATE_HASH,
    WORKER_INDEX,
    annotations_of,
    condition,
    is_ready,
    labels_of,
    owned_by,
    owner_reference,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.revision import template_hash
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.problems import ApiProblem

Doc = dict[str, Any]
_MESSAGES = {
    "Available": ("AllGroupsReady", "All replicas are ready"),
    "UpdateInProgress": ("GroupsUpdating", "Rolling Upgrade is in progress"),
    "Progressing": ("GroupsProgressing", "Replicas are progressing"),
}


def size_of(group_set: Doc) -> int:
    """Pods of one group."""
    return int(group_set["spec"]["leaderWorkerTemplate"].get("size", 1))


def hash_of(group_set: Doc) -> str:
    """The label of a LeaderWorkerSet's own template."""
    spec = group_set["spec"]
    return template_hash(spec["leaderWorkerTemplate"], spec.get("networkConfig") or {})


def leader_template(group_set: Doc) -> Doc:
    """The pod template of the leaders."""
    template = group_set["spec"]["leaderWorkerTemplate"]
    return pod_template(
        group_set,
        template.get("leaderTemplate") or template["workerTemplate"],
        labels={WORKER_INDEX: "0"},
        annotations={},
    )


def pod_template(
    group_set: Doc, template: Doc, *, labels: dict[str, str], annotations: dict[str, str]
) -> Doc:
    """A pod template with what the manager puts on every pod of a group."""
    made: Doc = thaw(template)
    metadata = made["metadata"] = dict(made.get("metadata") or {})
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        LWS_NAME: group_set["metadata"]["name"],
        TEMPLATE_HASH: hash_of(group_set),
        **labels,
    }
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        SIZE: str(size_of(group_set)),
        **annotations,
    }
    if topology := annotations_of(group_set).get(EXCLUSIVE):
        metadata["annotations"][EXCLUSIVE] = topology
    if (group_set["spec"].get("networkConfig") or {}).get("subdomainPolicy") == "UniquePerReplica":
        metadata["annotations"][SUBDOMAIN_POLICY] = "UniquePerReplica"
    return made


class GroupSets(Controller):
    """One LeaderWorkerSet at a time."""

    name = "leaderworkerset"
    user = MANAGER
    watches = (GROUP_SETS, STATEFUL_SETS, PODS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A LeaderWorkerSet, or the one whose leaders or workers have changed."""
        namespace, name = where(doc)
        if kind != GROUP_SETS:
            name = labels_of(doc).get(LWS_NAME, "")
        return [(namespace, name)] if name else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Bring one LeaderWorkerSet to what its spec says."""
        group_set = hands.find(GROUP_SETS, *key)
        if group_set is None or "deletionTimestamp" in group_set["metadata"]:
            return None
        leaders = hands.find(STATEFUL_SETS, *key)
        if leaders is None:
            leaders = await self._create_leaders(hands, group_set)
        elif owned_by(leaders, "LeaderWorkerSet") == key:
            leaders = await self._update_leaders(hands, group_set, leaders)
        if hands.find(SERVICES, *key) is None:
            await self._create_service(hands, group_set)
        await self._write_status(hands, group_set, leaders)
        return None

    async def _create_leaders(self, hands: Hands, group_set: Doc) -> Doc:
        namespace, name = where(group_set)
        spec = group_set["spec"]
        labels = {LWS_NAME: name, WORKER_INDEX: "0"}
        template = spec["leaderWorkerTemplate"]
        made: Doc = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {LWS_NAME: name, TEMPLATE_HASH: hash_of(group_set)},
                "annotations": {LWS_REPLICAS: str(spec["replicas"])},
                "ownerReferences": [owner_reference(group_set, blocks=True)],
            },
            "spec": {
                "podManagementPolicy": "Parallel",
                "replicas": spec["replicas"],
                "selector": {"matchLabels": labels},
                "serviceName": name,
                "template": leader_template(group_set),
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            },
        }
        if claims := template.get("volumeClaimTemplates"):
            made["spec"]["volumeClaimTemplates"] = thaw(claims)
        stored = await hands.create(made)
        await hands.event(
            group_set, "GroupsProgressing", f"The StatefulSet of the leaders, {name}, is created"
        )
        return stored

    async def _update_leaders(self, hands: Hands, group_set: Doc, leaders: Doc) -> Doc:
        replicas = group_set["spec"]["replicas"]
        label = hash_of(group_set)
        change: Doc = {}
        if leaders["spec"].get("replicas") != replicas:
            change = {
                "spec": {"replicas": replicas},
                "metadata": {"annotations": {LWS_REPLICAS: str(replicas)}},
            }
        if labels_of(leaders).get(TEMPLATE_HASH) != label:
            change.setdefault("metadata", {})["labels"] = {TEMPLATE_HASH: label}
            change.setdefault("spec", {})["template"] = leader_template(group_set)
            await hands.event(group_set, "GroupsUpdating", f"The leaders go to template {label}")
        return await hands.patch(STATEFUL_SETS, *where(leaders), change) if change else leaders

    async def _create_service(self, hands: Hands, group_set: Doc) -> None:
        namespace, name = where(group_set)
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {LWS_NAME: name},
            "ownerReferences": [owner_reference(group_set, blocks=True)],
        }
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {LWS_NAME: name}}
        try:
            await hands.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        except ApiProblem as problem:
            if problem.reason != "AlreadyExists":
                raise

    # --- status

    async def _write_status(self, hands: Hands, group_set: Doc, leaders: Doc) -> None:
        namespace, name = where(group_set)
        replicas = group_set["spec"]["replicas"]
        groups = _groups(hands, group_set)
        kind = _state(groups, replicas)
        conditions = _conditions(group_set, kind, hands.now)
        await hands.write_status(
            GROUP_SETS,
            namespace,
            name,
            {
                "replicas": (leaders.get("status") or {}).get("replicas", 0),
                "readyReplicas": sum(ready for _, ready, _ in groups),
                "updatedReplicas": sum(updated for _, _, updated in groups),
                "observedGeneration": group_set["metadata"]["generation"],
                "hpaPodSelector": f"{LWS_NAME}={name},{WORKER_INDEX}=0",
                "conditions": conditions,
            },
        )
        if condition(group_set, kind).get("status") != "True":
            reason, message = _MESSAGES[kind]
            ready = sum(each for _, each, _ in groups)
            await hands.event(group_set, reason, f"{message}: {ready} of {replicas} groups")


def _groups(hands: Hands, group_set: Doc) -> list[tuple[int, bool, bool]]:
    """Of every group with a leader (and workers, where it has any): index, ready, at the present template."""
    namespace, name = where(group_set)
    label, size = hash_of(group_set), size_of(group_set)
    found = []
    for leader in hands.list(PODS, namespace, labels=f"{LWS_NAME}={name},{WORKER_INDEX}=0"):
        ready = is_ready(leader)
        updated = labels_of(leader).get(TEMPLATE_HASH) == label
        if size > 1:
            workers = hands.find(STATEFUL_SETS, namespace, leader["metadata"]["name"])
            if workers is None:
                continue
            ready = ready and _all_available(workers)
            updated = updated and labels_of(workers).get(TEMPLATE_HASH) == label
        found.append((int(labels_of(leader).get(GROUP_INDEX, "0")), ready, updated))
    return found


def _all_available(workers: Doc) -> bool:
    status = workers.get("status") or {}
    return (
        status.get("availableReplicas", 0) == workers["spec"]["replicas"]
        and status.get("currentRevision") == status.get("updateRevision")
        and bool(status.get("updateRevision"))
    )


def _state(groups: list[tuple[int, bool, bool]], replicas: int) -> str:
    own = [each for each in groups if each[0] < replicas]
    if not all(updated for _, _, updated in own):
        return "UpdateInProgress"
    return "Available" if sum(ready for _, ready, _ in own) == replicas else "Progressing"


def _conditions(group_set: Doc, kind: str, now: str) -> list[Doc]:
    """Available excludes the other two; one that has become False keeps its reason and message."""
    generation = group_set["metadata"]["generation"]
    made = [dict(each) for each in (group_set.get("status") or {}).get("conditions") or ()]
    known = {each["type"]: each for each in made}
    if kind not in known:
        reason, message = _MESSAGES[kind]
        known[kind] = {"type": kind, "status": "", "reason": reason, "message": message}
        made.append(known[kind])
    for each in made:
        excluded = each["type"] != kind and "Available" in (each["type"], kind)
        state = "True" if each["type"] == kind else "False" if excluded else each["status"]
        if each["status"] != state:
            each["status"], each["lastTransitionTime"] = state, now
        each["observedGeneration"] = generation
    return made
