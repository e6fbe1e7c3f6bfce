"""Pod statuses as a kubelet writes them. Pure: documents in, documents out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.demo.emulator.controllers.images import Images
from deploy.rig.runner.status import HANDED_OVER

Doc = dict[str, Any]
# Of one container: what its entry says, given what it said before.
Entry = Callable[[Doc], Doc]


def condition_list(pod: Doc, now: str, changes: dict[str, tuple[bool, str]]) -> list[Doc]:
    """The pod's conditions with some of them set to (true, reason); a time changes only with its status."""
    made = {each["type"]: dict(each) for each in (pod.get("status") or {}).get("conditions") or ()}
    for kind, (true, reason) in changes.items():
        was = made.get(kind, {})
        since = was.get("lastTransitionTime") if was.get("status") == str(true) else now
        made[kind] = {"type": kind, "status": str(true), "lastTransitionTime": since or now}
        if reason:
            made[kind]["reason"] = reason
    return list(made.values())


def readiness(pod: Doc, now: str, *, ready: bool, ended: bool = False) -> list[Doc]:
    """The two conditions that follow from the containers."""
    said = (ready, "" if ready else "PodCompleted" if ended else "ContainersNotReady")
    return condition_list(pod, now, {"ContainersReady": said, "Ready": said})


def running(now: str) -> Doc:
    """The state of a container that runs."""
    return {"running": {"startedAt": now}}


def waiting(reason: str, message: str = "") -> Doc:
    """The state of a container that is not started."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(code: int, now: str) -> Doc:
    """The state of a container that ended."""
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}


def first_status(pod: Doc, images: Images, now: str, *, address: str, host: str, kind: str) -> Doc:
    """What a kubelet says first. ``kind`` is "running", "pull-error" or "program" (the runner's from here on)."""
    spec = pod["spec"]
    pulled, program = kind != "pull-error", kind == "program"
    state = running(now)
    if not pulled:
        state = waiting("ImagePullBackOff", "back-off pulling image")
    elif program:
        state = waiting("ContainerCreating")
    changes = {"Initialized": (True, "")}
    if program:
        changes[HANDED_OVER] = (True, "")
    for gate in spec.get("readinessGates") or ():
        changes[gate["conditionType"]] = (True, "")
    status: Doc = {
        "phase": "Running" if kind == "running" else "Pending",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": readiness(
            {"status": {"conditions": condition_list(pod, now, changes)}}, now, ready=False
        ),
        "containerStatuses": [_entry(each, images, state, pulled) for each in spec["containers"]],
    }
    if host:
        status.update(hostIP=host, hostIPs=[{"ip": host}])
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [_init_entry(each, images, now) for each in spec["initContainers"]]
    return status


def _entry(container: Doc, images: Images, state: Doc, pulled: bool) -> Doc:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": images.image_id(container["image"]) if pulled else "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _init_entry(container: Doc, images: Images, now: str) -> Doc:
    stays = container.get("restartPolicy") == "Always"
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": images.image_id(container["image"]),
        "ready": True,
        "started": stays,
        "restartCount": 0,
        "state": running(now) if stays else terminated(0, now),
        "lastState": {},
    }


def ready_status(pod: Doc, now: str, *, ready: bool) -> Doc:
    """All containers have become ready, or are not any more; they stay started either way."""
    return {
        "conditions": readiness(pod, now, ready=ready),
        "containerStatuses": _entries(pod, lambda was: {**was, "ready": ready, "started": True}),
    }


def crashed_status(pod: Doc, now: str, *, stays_down: bool) -> Doc:
    """All containers have ended with an error: they wait to be started again, or (``stays_down``) the pod failed."""
    ended = terminated(1, now)
    if stays_down:
        entry: Entry = lambda was: {**was, "ready": False, "started": False, "state": ended}  # noqa: E731
        phase = "Failed"
    else:
        entry = lambda was: {  # noqa: E731
            **was,
            "ready": False,
            "started": False,
            "restartCount": was["restartCount"] + 1,
            "state": waiting("CrashLoopBackOff", "back-off restarting failed container"),
            "lastState": ended,
        }
        phase = "Running"
    return {
        "phase": phase,
        "conditions": readiness(pod, now, ready=False),
        "containerStatuses": _entries(pod, entry),
    }


def restarted_status(pod: Doc, now: str) -> Doc:
    """All containers run again, not ready yet."""
    return {
        "containerStatuses": _entries(
            pod, lambda was: {**was, "ready": False, "started": False, "state": running(now)}
        )
    }


def completed_status(pod: Doc, now: str) -> Doc:
    """All containers have ended well."""
    ended = terminated(0, now)
    return {
        "phase": "Succeeded",
        "conditions": readiness(pod, now, ready=False, ended=True),
        "containerStatuses": _entries(
            pod, lambda was: {**was, "ready": False, "started": False, "state": ended}
        ),
    }


def _entries(pod: Doc, change: Entry) -> list[Doc]:
    return [change(dict(each)) for each in (pod.get("status") or {}).get("containerStatuses") or ()]
