"""The Job controller: pods that are to end well, tried again until they do or there were enough tries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    JOBS,
    PODS,
    condition,
    is_active,
    is_ready,
    owned_by,
    seconds_between,
    where,
)
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.replica_sets import pod_of
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.requests import service_account

Doc = dict[str, Any]


class Jobs(Controller):
    """One Job at a time."""

    name = "job-controller"
    user = service_account("kube-system", "job-controller")
    watches = (JOBS, PODS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A Job, or the owner of a pod."""
        if kind == JOBS:
            return [where(doc)]
        owner = owned_by(doc, "Job")
        return [owner] if owner else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Start pods, count their ends, say how it went; returns when a limit of time is reached."""
        job = hands.find(JOBS, *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return None
        if condition(job, "Complete") or condition(job, "Failed"):
            return await self._expire(hands, job)
        spec, status = job["spec"], job.get("status") or {}
        started = status.get("startTime") or hands.now
        pods = hands.dependents(job["metadata"]["uid"], PODS)
        active = [pod for pod in pods if is_active(pod)]
        good = sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods)
        bad = sum((pod.get("status") or {}).get("phase") == "Failed" for pod in pods)
        restarts = sum(_restarts(pod) for pod in active)
        wanted = spec.get("completions") or 1
        deadline = spec.get("activeDeadlineSeconds")
        left = None if deadline is None else deadline - seconds_between(started, hands.now)
        end = self._end(good, bad + restarts, wanted, spec.get("backoffLimit", 6), left)
        if end is None and not spec.get("suspend"):
            missing = min(spec.get("parallelism", 1), wanted - good) - len(active)
            for _ in range(missing):
                await hands.create(_pod(job))
                active.append({})
        elif end is not None and end[0] == "Failed":
            for pod in active:
                await hands.delete(PODS, *where(pod), uid=pod["metadata"]["uid"])
            active = []
        said: Doc = {
            "startTime": started,
            "active": len(active),
            "ready": sum(is_ready(pod) for pod in active if pod),
            "succeeded": good,
            "failed": bad,
        }
        if end is not None:
            said |= self._over(end, hands.now)
        await hands.write_status(JOBS, *key, said)
        if end is not None:
            await hands.event(job, "Completed" if end[0] == "Complete" else end[1], end[2] or "Job completed")
        return None if end is not None or left is None else max(0.05, left)

    @staticmethod
    def _over(end: tuple[str, str, str], now: str) -> Doc:
        """What the status says of the end."""
        kind, reason, message = end
        ended = {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        conditions = [{**ended, **({"reason": reason, "message": message} if reason else {})}]
        return {"conditions": conditions, **({"completionTime": now} if kind == "Complete" else {})}

    @staticmethod
    def _end(good: int, bad: int, wanted: int, limit: int, left: float | None) -> tuple[str, str, str] | None:
        """Type, reason and message of the condition that ends a Job, or None while it goes on."""
        if good >= wanted:
            return "Complete", "", ""
        if bad > limit:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if left is not None and left <= 0:
            return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    async def _expire(self, hands: Hands, job: Doc) -> float | None:
        """An ended Job goes after its time to live."""
        keep = job["spec"].get("ttlSecondsAfterFinished")
        if keep is None:
            return None
        ended = condition(job, "Complete") or condition(job, "Failed")
        left = float(keep - seconds_between(ended["lastTransitionTime"], hands.now))
        if left > 0:
            return left
        await hands.delete(JOBS, *where(job), uid=job["metadata"]["uid"])
        return None


def _pod(job: Doc) -> Doc:
    template: Doc = thaw(job["spec"]["template"])
    metadata = template["metadata"] = dict(template.get("metadata") or {})
    name = job["metadata"]["name"]
    own = {"job-name": name, "batch.kubernetes.io/job-name": name}
    uid = job["metadata"]["uid"]
    own |= {"controller-uid": uid, "batch.kubernetes.io/controller-uid": uid}
    metadata["labels"] = {**(metadata.get("labels") or {}), **own}
    return pod_of(job, template)


def _restarts(pod: Doc) -> int:
    return sum(
        each.get("restartCount", 0) for each in (pod.get("status") or {}).get("containerStatuses") or ()
    )
