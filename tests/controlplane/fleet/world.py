"""Objects in the shape that LWS makes them (see recorded/), for tests that need many situations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Doc = dict[str, Any]
START = datetime(2026, 11, 30, 4, tzinfo=UTC)
UID = "set-uid"
PREFIX = "disaggregatedset.x-k8s.io"


def recorded(name: str) -> dict[str, Any]:
    """{set, children, pods} as the rig showed them."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
    return found


def stamp(seconds: float) -> str:
    """A Kubernetes timestamp, `seconds` after START."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def role(
    name: str, replicas: int | None, *, image: str = "e:1", external: bool = False, size: int = 1
) -> Doc:
    """One entry of spec.roles."""
    template = {"metadata": {}, "spec": {"containers": [{"name": "engine", "image": image, "args": ["--x"]}]}}
    entry: Doc = {
        "name": name,
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    }
    if external:
        entry["scaling"] = {"mode": "External"}
    return entry


def make_set(roles: Sequence[Doc], *, slices: int | None = None, uid: str = UID) -> Doc:
    """A set named llm/chat."""
    spec: Doc = {"roles": list(roles)}
    if slices is not None:
        spec["slices"] = slices
    metadata = {"name": "chat", "namespace": "llm", "uid": uid, "generation": 1, "resourceVersion": "9"}
    return {"metadata": metadata, "spec": spec}


def make_child(
    entry: Mapping[str, Any],
    revision: str,
    replicas: int,
    *,
    ready: int | None = None,
    slice_key: str | None = None,
    born: float = 0,
    uid: str = "",
    owner: str = UID,
    changed: float | None = None,
) -> Doc:
    """The LeaderWorkerSet of one place. `slice_key` None is the scheme of 0.9.0."""
    name = entry["name"]
    parts = ["chat", revision, name] if slice_key is None else ["chat", slice_key, revision, name]
    labels = {
        f"{PREFIX}/name": "chat",
        f"{PREFIX}/revision": revision,
        f"{PREFIX}/role": name,
        "app": "-".join(parts),
    }
    if slice_key is not None:
        labels[f"{PREFIX}/slice"] = slice_key
    template = deepcopy(entry["spec"]["leaderWorkerTemplate"])
    template["workerTemplate"]["metadata"] = {"labels": dict(labels)}
    moment = stamp(born if changed is None else changed)
    return {
        "metadata": {
            "name": "-".join(parts),
            "namespace": "llm",
            "uid": uid or f"uid-{'-'.join(parts)}-{born}",
            "creationTimestamp": stamp(born),
            "generation": 1,
            "resourceVersion": "5",
            "labels": labels,
            "ownerReferences": [{"kind": "DisaggregatedSet", "uid": owner, "controller": True}],
        },
        "spec": {"replicas": replicas, "leaderWorkerTemplate": template},
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "readyReplicas": replicas if ready is None else ready,
            "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": moment}],
        },
    }


def make_pod(
    child: Doc,
    group: int,
    worker: int = 0,
    *,
    ready: bool = True,
    born: float = 1,
    since: float | None = None,
    **fields: Any,
) -> Doc:
    """A pod of a LeaderWorkerSet's group; `since` is when its readiness last changed."""
    labels = {
        "leaderworkerset.sigs.k8s.io/name": child["metadata"]["name"],
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
        **child["metadata"]["labels"],
    }
    name = f"{child['metadata']['name']}-{group}" + (f"-{worker}" if worker else "")
    condition = {
        "type": "Ready",
        "status": str(ready),
        "lastTransitionTime": stamp(born if since is None else since),
    }
    metadata = {"name": name, "namespace": "llm", "uid": f"pod-{name}", "creationTimestamp": stamp(born)}
    return {
        "metadata": {**metadata, "labels": labels, **fields.pop("metadata", {})},
        "spec": {"nodeName": "gpu-1"},
        "status": {
            "phase": "Running",
            "conditions": [condition],
            "containerStatuses": [
                {"name": "engine", "image": "e:1", "imageID": "e@sha256:1", "restartCount": 0, "state": {}}
            ],
            **fields,
        },
    }
