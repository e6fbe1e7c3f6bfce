"""The list of differences of the controllers is true: each is shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.emulator.controllers.differences import LIVING
from deploy.demo.emulator.controllers.names import DEPLOYMENTS, GROUP_SETS, JOBS, PODS, condition
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.rig.nodes import RACK, NodePool
from deploy.rig.workloads import is_ready, role
from tests.demo.emulator.controllers.test_pods import gpus, pod
from tests.demo.emulator.controllers.test_workloads import images, job, workload
from tests.demo.emulator.controllers.world import SET, SPACE, World, world
from tests.demo.emulator.controllers.world import images as roles_of

Doc = dict[str, Any]
RECORDED = Path(__file__).parents[3] / "fixtures" / "sliced" / "adopted.json"


async def revision_labels(made: World) -> bool:
    found = json.loads(RECORDED.read_text())["items"]
    stored = next(each for each in found if each["kind"] == "DisaggregatedSet")
    return set_revision(stored["spec"]["roles"]) != "beba49cf"


async def controller_revisions(made: World) -> bool:
    made.make_set(roles_of("v1", 1, 1))
    await made.settles()
    return not made.store.list("controllerrevisions.apps")


async def updates_inside_a_group_set(made: World) -> bool:
    made.make_set([role("prefill", 3, size=2, surge=2), role("decode", 1)])
    label = await made.settles()
    name = f"{SET}-{label}-prefill"
    template = json.loads(json.dumps(made.store.get(GROUP_SETS, SPACE, name)["spec"]["leaderWorkerTemplate"]))
    template["workerTemplate"]["spec"]["containers"][0]["image"] = "registry.example/engine:v9"
    made.admin.patch(GROUP_SETS, SPACE, name, {"spec": {"leaderWorkerTemplate": template}})
    most = 0

    def all_new() -> bool:
        nonlocal most
        pods = made.pods("disaggregatedset.x-k8s.io/role=prefill")
        most = max(most, len(pods))
        return len(pods) == 6 and all(
            ":v9" in str(each["spec"]["containers"]) and is_ready(each) for each in pods
        )

    await made.until("all groups are new", all_new)
    await made.until(
        "it says so", lambda: made.store.get(GROUP_SETS, SPACE, name)["status"]["updatedReplicas"] == 3
    )
    return most == 6


async def placement_policy(made: World) -> bool:
    policy = {"type": "ExclusiveSlice", "topology": RACK}
    set_doc = {"apiVersion": "disaggregatedset.x-k8s.io/v1", "kind": "DisaggregatedSet"}
    spec = {"roles": roles_of("v1", 1, 1), "placementPolicy": policy}
    made.admin.create({**set_doc, "metadata": {"name": SET, "namespace": SPACE}, "spec": spec})
    await made.settles()
    return "ffinity" not in str([each["spec"]["leaderWorkerTemplate"] for each in made.children()])


async def preemption(made: World) -> bool:
    made.admin.create(pod("first", container=gpus(8)))
    await made.until("placed", lambda: made.store.get(PODS, SPACE, "first")["spec"].get("nodeName"))
    made.admin.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
        }
    )
    made.admin.create(pod("second", container=gpus(8), priorityClassName="high"))
    await made.until("refused", lambda: condition(made.store.get(PODS, SPACE, "second"), "PodScheduled"))
    return is_ready(made.store.get(PODS, SPACE, "first"))


async def lost_nodes(made: World) -> bool:
    return not made.store.list("leases.coordination.k8s.io", "kube-node-lease")


async def nothing_runs(made: World) -> bool:
    probe = {"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}}
    made.admin.create(pod("p", container=probe))
    await made.until("ready", lambda: is_ready(made.store.get(PODS, SPACE, "p")))
    await made.quiet()
    return is_ready(made.store.get(PODS, SPACE, "p"))


async def jobs_that_hang(made: World) -> bool:
    made.admin.create(job("v1-never-ready"))
    await made.until("it runs", lambda: "Running" in made.states().values())
    await made.quiet()
    return not (made.store.get(JOBS, SPACE, "try")["status"]).get("conditions")


async def autoscalers(made: World) -> bool:
    made.admin.create(workload("Deployment", 1))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "router"}
    made.admin.create(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": SPACE},
            "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4},
        }
    )
    await made.until("one serves", lambda: len(images(made)) == 1)
    await made.quiet()
    return bool(made.store.get(DEPLOYMENTS, SPACE, "router")["spec"]["replicas"] == 1)


async def volume_claims(made: World) -> bool:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    made.admin.create(workload("StatefulSet", 1, serviceName="router", volumeClaimTemplates=[claim]))
    await made.until("one serves", lambda: len(images(made)) == 1)
    return not made.store.list("persistentvolumeclaims")


SHOWN: dict[str, Callable[[World], Awaitable[bool]]] = {
    "revision-labels": revision_labels,
    "controller-revisions": controller_revisions,
    "updates-inside-a-group-set": updates_inside_a_group_set,
    "placement-policy": placement_policy,
    "preemption": preemption,
    "lost-nodes": lost_nodes,
    "nothing-runs": nothing_runs,
    "jobs-that-hang": jobs_that_hang,
    "autoscalers": autoscalers,
    "volume-claims": volume_claims,
}


@pytest.mark.parametrize("name", [each.name for each in LIVING])
def test_the_list_is_true(name: str) -> None:
    async def whole() -> None:
        nodes = NodePool(count=1) if name == "preemption" else None
        async with world(slices=name == "placement-policy", nodes=nodes) as made:
            assert await SHOWN[name](made)

    asyncio.run(whole())
