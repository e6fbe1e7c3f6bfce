"""Pods to groups: one group is a leader and its workers, ready when all of them are (LWS status, digest
4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.fleet.names import GROUP_INDEX, WORKER_INDEX, created_at, labels_of, read_time, write_time

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. `ready_since` is None while it is not ready, `unready_since` while it is. `images` maps
    container name to {image, image_id}; the ID is empty until the container has started. `restarts` sums
    all containers."""

    name: str
    uid: str
    worker: int
    node: str
    ip: str
    phase: str
    ready: bool
    ready_since: datetime | None
    unready_since: datetime | None
    restarts: int
    waiting: (
        str  # why a container does not run (ImagePullBackOff, CrashLoopBackOff, …) or the pod is not placed
    )
    images: Mapping[str, Mapping[str, str]]
    leaving: bool

    def as_json(self) -> Json:
        """What screens show of a pod. Times and addresses that change without meaning are left out."""
        return {
            "name": self.name,
            "worker": self.worker,
            "node": self.node,
            "ready": self.ready,
            "restarts": self.restarts,
            "waiting": self.waiting,
            "leaving": self.leaving,
            "images": {name: dict(image) for name, image in self.images.items()},
        }


@dataclass(frozen=True, slots=True)
class GroupView:
    """One LWS group. Ready: the leader and all `size - 1` workers are ready and none is leaving."""

    index: int
    ready: bool
    ready_since: datetime | None
    unready_since: datetime | None
    restarts: int
    pods: tuple[PodView, ...]

    def as_json(self) -> Json:
        """The group with its pods."""
        return {
            "index": self.index,
            "ready": self.ready,
            "unready_since": write_time(self.unready_since),
            "pods": [pod.as_json() for pod in self.pods],
        }


def derive_pod(pod: Mapping[str, Any]) -> PodView:
    """One pod from its object."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    condition = conditions.get("Ready") or {}
    statuses = status.get("containerStatuses") or []
    leaving = bool(metadata.get("deletionTimestamp"))
    phase = str(status.get("phase") or "")
    ready = phase == "Running" and condition.get("status") == "True" and not leaving
    since = read_time(condition.get("lastTransitionTime")) or created_at(pod)
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        worker=_index(labels_of(pod).get(WORKER_INDEX)),
        node=str(spec.get("nodeName") or ""),
        ip=str(status.get("podIP") or ""),
        phase=phase,
        ready=ready,
        ready_since=since if ready else None,
        unready_since=None if ready else since,
        restarts=sum(int(each.get("restartCount") or 0) for each in statuses),
        waiting=_why_waiting(statuses, conditions),
        images={
            each["name"]: {"image": str(each.get("image") or ""), "image_id": str(each.get("imageID") or "")}
            for each in sorted(statuses, key=lambda status: str(status["name"]))
        },
        leaving=leaving,
    )


def derive_groups(
    pods: Iterable[Mapping[str, Any]], *, size: int, not_before: datetime | None = None
) -> tuple[GroupView, ...]:
    """The groups that exist, by index. `not_before` drops pods that an earlier object of the same name has
    left."""
    by_group: dict[int, list[PodView]] = {}
    for pod in pods:
        born = created_at(pod)
        if not_before and born and born < not_before:
            continue
        by_group.setdefault(_index(labels_of(pod).get(GROUP_INDEX)), []).append(derive_pod(pod))
    return tuple(_derive_group(index, by_group[index], size) for index in sorted(by_group))


def _derive_group(index: int, pods: list[PodView], size: int) -> GroupView:
    ordered = tuple(sorted(pods, key=lambda pod: (pod.worker, pod.name)))
    workers_ready = {pod.worker for pod in ordered if pod.ready}
    ready = all(worker in workers_ready for worker in range(size)) and not any(pod.leaving for pod in ordered)
    since = [pod.ready_since for pod in ordered if pod.ready_since]
    unready = [pod.unready_since for pod in ordered if pod.unready_since]
    return GroupView(
        index=index,
        ready=ready,
        ready_since=max(since) if ready and since else None,
        # All that exist are ready and the group is not: a member is missing since, at the latest, the last
        # change.
        unready_since=None if ready else min(unready, default=max(since, default=None)),
        restarts=sum(pod.restarts for pod in ordered),
        pods=ordered,
    )


def _why_waiting(statuses: Iterable[Mapping[str, Any]], conditions: Mapping[Any, Mapping[str, Any]]) -> str:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable")
    for each in statuses:
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "Waiting")
    return ""


def _index(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
