"""The manager's webhook on pods of a LeaderWorkerSet: which group, which place in it, whom to talk to.

Like the others of the manager it fails closed: while it cannot be reached, no such pod can be created.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from deploy.demo.emulator.controllers.names import (
    EXCLUSIVE,
    GROUP_INDEX,
    GROUP_KEY,
    LEADER_NAME,
    LWS_NAME,
    SIZE,
    SUBDOMAIN_POLICY,
    WORKER_INDEX,
    ordinal_of,
)
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import Write

Doc = dict[str, Any]
_URL = "https://127.0.0.1:9443/mutate--v1-pod?timeout=10s"


class PodWebhook:
    """``change`` belongs into Writes.changers; ``is_up`` says whether the manager can be reached."""

    def __init__(self, is_up: Callable[[], bool] = lambda: True) -> None:
        self.is_up = is_up

    def change(self, write: Write, doc: Doc) -> None:
        """Label a new pod of a group. Raises ApiProblem 500 while the webhook is away."""
        if write.kind.ref != "pods" or write.operation != "CREATE":
            return
        labels = doc["metadata"].get("labels") or {}
        if LWS_NAME not in labels:
            return
        if not self.is_up():
            why = f'failed calling webhook "mpod.kb.io": failed to call webhook: Post "{_URL}": connection refused'
            details = {"causes": [{"message": why}]}
            raise ApiProblem(500, "InternalError", f"Internal error occurred: {why}", details)
        _label(doc, doc["metadata"].setdefault("labels", {}))


def _label(pod: Doc, labels: dict[str, str]) -> None:
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    name, namespace, set_name = metadata["name"], metadata["namespace"], labels[LWS_NAME]
    index = ordinal_of(name)
    if labels.get(WORKER_INDEX) == "0":
        leader = name
        labels.setdefault(GROUP_INDEX, str(index))
        labels.setdefault(GROUP_KEY, hashlib.sha1(f"{namespace}/{name}".encode()).hexdigest())
        if topology := annotations.get(EXCLUSIVE):
            _keep_apart(pod["spec"], labels[GROUP_KEY], topology)
    else:
        leader = annotations.get(LEADER_NAME, "")
        labels[WORKER_INDEX] = str(index)
    subdomain = set_name
    if annotations.get(SUBDOMAIN_POLICY) == "UniquePerReplica":
        subdomain = pod["spec"]["subdomain"] = leader
    variables = {
        "LWS_LEADER_ADDRESS": f"{leader}.{subdomain}.{namespace}",
        "LWS_GROUP_SIZE": annotations.get(SIZE, "1"),
        "LWS_WORKER_INDEX": labels[WORKER_INDEX],
    }
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        own = [each for each in container.get("env") or [] if each["name"] not in variables]
        container["env"] = [*({"name": key, "value": value} for key, value in variables.items()), *own]


def _keep_apart(spec: Doc, group: str, topology: str) -> None:
    """A group has its domain to itself: affinity to its own pods, none to those of any other group."""
    affinity = spec.setdefault("affinity", {})
    own = {"key": GROUP_KEY, "operator": "In", "values": [group]}
    others = [{"key": GROUP_KEY, "operator": "Exists"}, {**own, "operator": "NotIn"}]
    for part, expressions in (("podAffinity", [own]), ("podAntiAffinity", others)):
        terms = affinity.setdefault(part, {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
        terms.append({"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology})
