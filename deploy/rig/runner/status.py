"""Pod statuses as a kubelet writes them: what the containers are, and what follows for the pod. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Doc = dict[str, Any]
# Only the stage that hands a pod to the runner writes this condition (stages.py): it marks the pods that are ours.
HANDED_OVER = "PodReadyToStartContainers"


@dataclass
class View:
    """What a pod's status says of one container; ``state`` and ``last`` have a key of waiting, running, terminated.

    ``image`` is what KWOK wrote with the pod's address: the image and its ID.
    """

    name: str
    ready: bool = False
    started: bool = False
    restarts: int = 0
    state: Doc = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Doc = field(default_factory=dict)
    image: Doc = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Doc) -> View:
        """As it was stored by whoever watched the container before."""
        return cls(
            name=stored["name"],
            restarts=stored["restartCount"],
            state=stored.get("state") or {},
            last=stored.get("lastState") or {},
            image={"image": stored["image"], "imageID": stored["imageID"]},
        )

    def document(self) -> Doc:
        """The entry of containerStatuses, whole: the API server replaces the list."""
        return {
            "name": self.name,
            **self.image,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


def running(now: str) -> Doc:
    """The state of a container whose program runs."""
    return {"running": {"startedAt": now}}


def waiting(reason: str, message: str) -> Doc:
    """The state of a container that is not started."""
    return {"waiting": {"reason": reason, "message": message}}


def terminated(code: int, began: str, now: str, reason: str | None = None) -> Doc:
    """The state of a container that ended; ``code`` is 128 + n after signal n."""
    word = reason or ("Completed" if code == 0 else "StartError" if code == 128 else "Error")
    return {"terminated": {"exitCode": code, "reason": word, "startedAt": began, "finishedAt": now}}


def exit_code(returned: int) -> int:
    """A container's exit code from what a process returned (-n for signal n)."""
    return returned if returned >= 0 else 128 - returned


def phase(views: Sequence[View], *, ended: bool) -> str:
    """A pod's phase; ``ended``: no container will start again."""
    if ended:
        codes = [view.state.get("terminated", {}).get("exitCode", 0) for view in views]
        return "Failed" if any(codes) else "Succeeded"
    begun = any(view.restarts or view.last or "waiting" not in view.state for view in views)
    return "Running" if begun else "Pending"


def conditions(views: Sequence[View], before: Sequence[Doc], now: str, *, ended: bool) -> list[Doc]:
    """The two conditions that follow from the containers; a time changes only with its status."""
    ready = not ended and all(view.ready for view in views)
    reason = None if ready else "PodCompleted" if ended else "ContainersNotReady"
    made = []
    for kind in ("ContainersReady", "Ready"):
        was = next((each for each in before if each["type"] == kind), {})
        since = was.get("lastTransitionTime") if was.get("status") == str(ready) else now
        made.append(
            {"type": kind, "status": str(ready), "reason": reason, "lastTransitionTime": since or now}
        )
    return made


def handed_over(pod: Doc) -> bool:
    """Whether KWOK gave the pod an address and left the rest to the runner."""
    return any(each["type"] == HANDED_OVER for each in pod.get("status", {}).get("conditions") or [])
