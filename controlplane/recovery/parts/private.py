"""The `-prv` Services of a revision that is started again: a held controller ends in a refused step and makes none."""

from __future__ import annotations

from typing import Any

from controlplane.holds.private_services import service_for
from controlplane.kube.errors import AlreadyExists
from controlplane.kube.resources import SERVICES
from controlplane.operations.contract import Done, Outcome, PlannedStep, Wait
from controlplane.recovery.parts.reaching import in_the_way, stuck
from controlplane.recovery.parts.task import Task
from policy.recovery.order import Way

Json = dict[str, Any]


def publish_services(task: Task, *, way: Way) -> Outcome:
    """Make them as soon as the controller has made the sets of every role: engines may look for each other by these
    names before they are ready. One that comes too late, after a pause of its worker, is the recorded revision's all
    the same: the controller takes it along or away."""
    live = task.writer.look()
    if finding := in_the_way(task, live, way, PlannedStep("recovery.publish_services", {"way": way})):
        return finding
    wanted = [(place, task.good, role["name"]) for place in live.slices for role in task.workload["roles"]]
    if missing := [f"{key[0]}/{key[2]}" for key in wanted if key not in live.children]:
        if task.waited >= task.stuck_after:
            return stuck(task, [f"no set of {each} was made" for each in missing])
        return Wait(1, f"the controller to create {', '.join(missing)} of {task.good}")
    found: Json = {"created": [], "already_there": []}
    for key in wanted:
        body = service_for(live.body, live.children[key].body)
        try:
            task.kube.create(SERVICES, body, task.namespace)
        except AlreadyExists:
            found["already_there"].append(body["metadata"]["name"])
        else:
            found["created"].append(body["metadata"]["name"])
    return Done(result=found)
