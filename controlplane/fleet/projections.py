"""What a watcher keeps of each object: all that the view reads, and nothing that moves without meaning.

A change that leaves the projection equal costs nothing further, so node heartbeats, managed fields and
versions stay out. Strings that repeat over thousands of pods are shared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.fleet.names import (
    GROUP_INDEX,
    LWS_NAME,
    SET_NAME,
    SET_REVISION,
    SET_ROLE,
    SET_SLICE,
    WORKER_INDEX,
)

Json = dict[str, Any]

_POD_LABELS = (SET_NAME, SET_REVISION, SET_ROLE, SET_SLICE, LWS_NAME, GROUP_INDEX, WORKER_INDEX)
_POD_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_NOISE = ("managedFields", "resourceVersion", "selfLink")


def keep_object(item: Json) -> Json:
    """A set, a LeaderWorkerSet or a parameter: whole, less managed fields and version."""
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key not in _NOISE}}


def keep_name(item: Json) -> Json:
    """An admission policy or binding: that it is there, and when it changed."""
    return {"metadata": _pick(item["metadata"], ("name", "uid", "generation"))}


def keep_pod(pod: Json) -> Json:
    """A pod: labels of its place, node, readiness, images and restarts."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    kept = _pick(metadata, _POD_METADATA)
    kept["labels"] = {key: _share(labels[key]) for key in _POD_LABELS if key in labels}
    if "namespace" in kept:
        kept["namespace"] = _share(kept["namespace"])
    spec = {"nodeName": _share(pod["spec"]["nodeName"])} if (pod.get("spec") or {}).get("nodeName") else {}
    return {
        "metadata": kept,
        "spec": spec,
        "status": {
            "phase": _share(status.get("phase") or ""),
            "conditions": _conditions(status.get("conditions") or (), ("Ready", "PodScheduled")),
            "containerStatuses": [_container(each) for each in status.get("containerStatuses") or ()],
        },
    }


def keep_node(node: Json) -> Json:
    """A node: whether it takes pods; not its heartbeats."""
    status = node.get("status") or {}
    ready = [
        {"type": "Ready", "status": each.get("status")}
        for each in status.get("conditions") or ()
        if each.get("type") == "Ready"
    ]
    return {
        "metadata": {"name": node["metadata"]["name"]},
        "spec": _pick(node.get("spec") or {}, ("unschedulable",)),
        "status": {"conditions": ready},
    }


def _container(status: Mapping[str, Any]) -> Json:
    kept: Json = {
        "name": _share(status["name"]),
        "image": _share(status.get("image") or ""),
        "imageID": _share(status.get("imageID") or ""),
        "restartCount": status.get("restartCount") or 0,
    }
    waiting = (status.get("state") or {}).get("waiting")
    if waiting:
        kept["state"] = {"waiting": {"reason": _share(waiting.get("reason") or "Waiting")}}
    return kept


def _conditions(conditions: Iterable[Mapping[str, Any]], wanted: tuple[str, ...]) -> list[Json]:
    return [
        {
            key: _share(each[key])
            for key in ("type", "status", "reason", "lastTransitionTime")
            if each.get(key)
        }
        for each in conditions
        if each.get("type") in wanted
    ]


def _pick(item: Mapping[str, Any], keys: tuple[str, ...]) -> Json:
    return {key: item[key] for key in keys if key in item}


def _share(text: str) -> str:
    return sys.intern(text)
