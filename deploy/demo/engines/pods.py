"""What an engine pod is, read from its object."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Doc = Mapping[str, Any]
State = Literal["away", "loading", "up", "ending"]

SET_LABEL = "disaggregatedset.x-k8s.io/name"
SLICE_LABEL = "disaggregatedset.x-k8s.io/slice"
ROLE_LABEL = "disaggregatedset.x-k8s.io/role"
REVISION_LABEL = "disaggregatedset.x-k8s.io/revision"
ROUTER_ROLE_LABEL = "llm-d.ai/role"
_WORKER_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
_HASH_LABEL = "pod-template-hash"
_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z0-9]+)\)")
_ENGINE_NAMES = ("vllm", "modelserver", "model-server", "engine")


@dataclass(frozen=True)
class EnginePod:
    """A pod that runs an engine.

    ``incarnation`` changes with every new pod and every restart of the engine's container. ``state``: *away* nothing
    listens (not running, or between two starts) · *loading* started, never ready yet · *up* · *ending* asked to go.
    ``ready`` is the pod's own condition. ``revision`` is the set's, else the pod template's hash.
    """

    namespace: str
    name: str
    address: str
    set_name: str
    slice: str
    role: str
    revision: str
    image: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    incarnation: str
    state: State
    ready: bool
    deadline: str  # when a pod that is ending is to be gone (RFC 3339), else ""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


def read_pod(doc: Doc) -> EnginePod | None:
    """The engine of a pod object; None for pods that are none: no role label, or a worker behind a leader."""
    metadata, spec, status = doc["metadata"], doc.get("spec", {}), doc.get("status", {})
    labels = metadata.get("labels") or {}
    role = labels.get(ROUTER_ROLE_LABEL) or labels.get(ROLE_LABEL)
    containers = spec.get("containers") or []
    if not role or not containers or labels.get(_WORKER_LABEL, "0") != "0":
        return None
    container = _engine_container(containers)
    seen = _container_status(status, container["name"])
    restarts = seen.get("restartCount", 0)
    env = _environment(container, doc)
    return EnginePod(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        address=status.get("podIP", ""),
        set_name=labels.get(SET_LABEL, ""),
        slice=labels.get(SLICE_LABEL, "0"),
        role=role,
        revision=labels.get(REVISION_LABEL) or labels.get(_HASH_LABEL, ""),
        image=container.get("image", ""),
        args=_arguments(container, env),
        env=env,
        incarnation=f"{metadata.get('uid', metadata['name'])}/{restarts}",
        state=_state(metadata, status, seen),
        ready=_is_ready(status),
        deadline=metadata.get("deletionTimestamp") or "",
    )


def _engine_container(containers: list[Doc]) -> Doc:
    for container in containers:
        if container.get("name") in _ENGINE_NAMES:
            return container
    return containers[0]


def _container_status(status: Doc, name: str) -> Doc:
    for each in status.get("containerStatuses") or []:
        if each.get("name") == name:
            return dict(each)
    return {}


def _is_ready(status: Doc) -> bool:
    conditions = status.get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _state(metadata: Doc, status: Doc, seen: Doc) -> State:
    if metadata.get("deletionTimestamp"):
        return "ending"
    if status.get("phase") != "Running" or not status.get("podIP"):
        return "away"
    if seen and "running" not in (seen.get("state") or {"running": {}}):
        return "away"
    # A container that has no startup probe counts as started at once; where one says "not yet", weights still load.
    if seen.get("started") is False and not _is_ready(status):
        return "loading"
    return "up"


def _environment(container: Doc, pod: Doc) -> dict[str, str]:
    """Variables that the pod's object itself gives: texts, fields of the pod; values kept elsewhere are left out."""
    metadata = pod["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", "default"),
        "metadata.uid": metadata.get("uid", ""),
        "status.podIP": pod.get("status", {}).get("podIP", ""),
    }
    found: dict[str, str] = {}
    for each in container.get("env") or []:
        origin = (each.get("valueFrom") or {}).get("fieldRef") or {}
        if "value" in each:
            found[each["name"]] = _expanded(each["value"], found)
        elif origin.get("fieldPath") in fields:
            found[each["name"]] = fields[origin["fieldPath"]]
    return found


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' $(NAME), where NAME is known; $$ is a dollar sign."""
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]),
        text,
    )


def _arguments(container: Doc, env: Mapping[str, str]) -> tuple[str, ...]:
    """Command and arguments as one list; a script for ``sh -c`` is taken apart as a shell would, if it can be."""
    given = [*(container.get("command") or []), *(container.get("args") or [])]
    words = [_expanded(word, env) for word in given]
    if len(words) >= 3 and words[1] == "-c" and words[0].rsplit("/", 1)[-1] in ("sh", "bash"):
        try:
            return tuple(shlex.split(words[2]))
        except ValueError:
            return ()
    return tuple(words)
