"""Where pods come to lie, how they live and end."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.demo.emulator.controllers.behaviours import KUBELET, behaviour_of
from deploy.demo.emulator.controllers.names import GROUP_SETS, NODES, PODS, condition
from deploy.demo.emulator.controllers.settings import Times
from deploy.rig.nodes import RACK, NodePool
from deploy.rig.workloads import is_ready, role
from tests.demo.emulator.controllers.test_sets import run
from tests.demo.emulator.controllers.world import SET, SPACE, World, images, quick

Doc = dict[str, Any]


def pod(name: str, **spec: Any) -> Doc:
    container = {"name": "engine", "image": "registry.example/engine:v1", **spec.pop("container", {})}
    metadata = {"name": name, "namespace": SPACE, **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def gpus(number: int) -> Doc:
    return {"resources": {"limits": {"nvidia.com/gpu": str(number)}}}


def node_of(made: World, name: str) -> str:
    return str(made.store.get(PODS, SPACE, name)["spec"].get("nodeName", ""))


# --- placement


def test_a_pod_waits_for_room_and_gets_it() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(pod("large", container=gpus(6)))
        await made.until("placed", lambda: node_of(made, "large"))
        made.admin.create(pod("other", container=gpus(6)))
        await made.until("told", lambda: condition(made.store.get(PODS, SPACE, "other"), "PodScheduled"))
        said = condition(made.store.get(PODS, SPACE, "other"), "PodScheduled")
        assert said["reason"] == "Unschedulable"
        assert said["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        events = [each["reason"] for each in made.store.list("events", SPACE)]
        assert events == ["FailedScheduling"]
        made.admin.delete(PODS, SPACE, "large")
        await made.until("placed", lambda: node_of(made, "other"))

    run(scenario, nodes=NodePool(count=1))


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"nodeSelector": {RACK: "rack-1"}}, "gpu-1"),
        ({"nodeSelector": {RACK: "rack-9"}}, ""),
        ({"tolerations": [{"key": "only", "operator": "Exists"}], "nodeSelector": {RACK: "rack-2"}}, "gpu-2"),
        ({"nodeSelector": {RACK: "rack-2"}}, ""),
    ],
    ids=["selector", "no such rack", "tolerated", "tainted"],
)
def test_selectors_and_taints(spec: Doc, place: str) -> None:
    async def scenario(made: World) -> None:
        taint = {"key": "only", "effect": "NoSchedule"}
        made.admin.patch(NODES, "", "gpu-2", {"spec": {"taints": [taint]}})
        made.admin.create(pod("here", **spec))
        looked = "PodScheduled"
        await made.until("looked at", lambda: condition(made.store.get(PODS, SPACE, "here"), looked))
        assert node_of(made, "here") == place

    run(scenario, nodes=NodePool(count=3, rack_size=1))


def test_exclusive_groups_have_a_rack_to_themselves() -> None:
    async def scenario(made: World) -> None:
        prefill = role("prefill", 2, size=2)
        prefill["metadata"] = {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK}}
        made.make_set([prefill, role("decode", 1)])
        await made.settles()
        racks: dict[str, set[str]] = {}
        for each in made.pods("disaggregatedset.x-k8s.io/role=prefill"):
            group = each["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"]
            node = made.store.get(NODES, "", each["spec"]["nodeName"])
            racks.setdefault(group, set()).add(node["metadata"]["labels"][RACK])
        assert len(racks) == 2 and all(len(found) == 1 for found in racks.values())
        (decode,) = made.pods("disaggregatedset.x-k8s.io/role=decode")
        own = made.store.get(NODES, "", decode["spec"]["nodeName"])["metadata"]["labels"][RACK]
        # A group that asks for nothing is a group, too: it is kept out of both racks.
        assert racks["0"] != racks["1"] and own not in racks["0"] | racks["1"]

    run(scenario, nodes=NodePool(count=6, rack_size=2))


# --- life


def test_loading_takes_its_time() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 1, 1))
        await made.until("one runs", lambda: "Running" in made.states().values())
        assert "ready" not in made.states().values()
        await made.settles()

    run(scenario, times=quick(ready_s=0.3))


def test_behaviours_are_spelled_as_on_the_rig() -> None:
    def of(tag: str = "v1", **more: Any) -> tuple[str, float, float]:
        found = behaviour_of(pod("p", container={"image": f"registry.example:5000/e:{tag}"}, **more), Times())
        return found.kind, found.ready_s, found.end_s

    assert of() == ("ready", 0.0, 0.0)
    assert of("latest") == ("ready", 0.0, 0.0)
    assert of("v2-late") == ("late", 5.0, 0.0)
    assert of("v2-late-700ms") == ("late", 0.7, 0.0) and of("v2_late7s.x") == ("late", 7.0, 0.0)
    assert of("v2-never-ready") == ("never-ready", 0.0, 0.0)
    assert of("pull-error@sha256:" + "0" * 64)[0] == "pull-error"
    notes = {"rig.lockstep.dev/behaviour": "flicker", "rig.lockstep.dev/terminate-after": "1m30s"}
    assert of("v2-crash", metadata={"annotations": notes}) == ("flicker", 0.0, 90.0)
    assert of(metadata={"annotations": {"rig.lockstep.dev/ready-after": "50ms"}}) == ("late", 0.05, 0.0)


def test_a_tag_that_is_pushed_again_is_another_image() -> None:
    async def scenario(made: World) -> None:
        def image_ids() -> set[str]:
            return {each["status"]["containerStatuses"][0]["imageID"] for each in made.pods()}

        made.make_set(images("v1", 2, 1))
        await made.settles()
        (before,) = image_ids()
        made.cluster.images.push("registry.example/engine:v1", "another build")
        await made.quiet()
        assert image_ids() == {before}, "what runs stays what it is"
        victim = made.pods()[0]["metadata"]
        made.admin.delete(PODS, SPACE, victim["name"])
        await made.until(
            "another pod", lambda: made.pods()[0]["metadata"]["uid"] != victim["uid"] and made.settled()
        )
        assert len(image_ids()) == 2

    run(scenario)


def test_a_restart_in_a_group_makes_the_whole_group_anew() -> None:
    async def scenario(made: World) -> None:
        made.make_set([role("prefill", 1, size=2), role("decode", 1)])
        label = await made.settles()
        names = [f"{SET}-{label}-prefill-0", f"{SET}-{label}-prefill-0-1"]
        before = {name: made.store.get(PODS, SPACE, name)["metadata"]["uid"] for name in names}
        entry = dict(made.store.get(PODS, SPACE, names[1])["status"]["containerStatuses"][0])
        made.admin.write_status(PODS, SPACE, names[1], {"containerStatuses": [{**entry, "restartCount": 1}]})

        def all_anew() -> bool:
            found = [made.store.find(PODS, SPACE, name) for name in names]
            return all(each and is_ready(each) for each in found) and not any(
                each and each["metadata"]["uid"] in before.values() for each in found
            )

        await made.until("another group", all_anew)
        await made.settles()

    run(scenario)


def test_pods_have_their_grace() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(
            pod("slow", metadata={"annotations": {"rig.lockstep.dev/terminate-after": "300ms"}})
        )
        await made.until("runs", lambda: is_ready(made.store.get(PODS, SPACE, "slow")))
        made.admin.delete(PODS, SPACE, "slow")
        assert made.store.get(PODS, SPACE, "slow")["metadata"]["deletionGracePeriodSeconds"] == 30
        await made.quiet(0.1)
        assert made.store.find(PODS, SPACE, "slow") is not None
        await made.until("gone", lambda: made.store.find(PODS, SPACE, "slow") is None)
        made.admin.create(pod("forced", metadata={"annotations": {"rig.lockstep.dev/terminate-after": "1h"}}))
        await made.until("runs", lambda: is_ready(made.store.get(PODS, SPACE, "forced")))
        made.admin.delete(PODS, SPACE, "forced", grace_s=0)
        assert made.store.find(PODS, SPACE, "forced") is None

    run(scenario)


# --- nodes


def test_a_lost_node_loses_its_pods_only_when_somebody_ends_them() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1))
        label = await made.settles()
        name = f"{SET}-{label}-prefill-0"
        lost, uid = node_of(made, name), made.store.get(PODS, SPACE, name)["metadata"]["uid"]
        made.admin.patch(NODES, "", lost, {"metadata": {"annotations": {KUBELET: "gone"}}})
        await made.until(
            "not ready", lambda: condition(made.store.get(NODES, "", lost), "Ready")["status"] == "Unknown"
        )
        asked = "deletionTimestamp"
        await made.until("asked to go", lambda: asked in made.store.get(PODS, SPACE, name)["metadata"])
        await made.quiet()
        assert made.store.get(PODS, SPACE, name)["metadata"]["uid"] == uid, "nobody is there to end it"
        assert not made.settled()
        made.admin.delete(PODS, SPACE, name, grace_s=0)
        await made.until(
            "elsewhere", lambda: made.store.find(PODS, SPACE, name) and node_of(made, name) not in ("", lost)
        )
        made.admin.patch(NODES, "", lost, {"metadata": {"annotations": {KUBELET: None}}})
        await made.until("back", lambda: not made.store.get(NODES, "", lost)["spec"].get("taints"))
        await made.settles()

    run(scenario)


def test_pods_of_a_deleted_node_are_made_anew() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 2, 1))
        await made.settles()
        gone = made.pods()[0]["spec"]["nodeName"]
        made.admin.delete(NODES, "", gone)
        await made.until(
            "all elsewhere",
            lambda: (
                made.settled() and all(each["spec"].get("nodeName") not in ("", gone) for each in made.pods())
            ),
        )

    run(scenario)


def test_leaders_are_scaled_down_from_the_highest_number() -> None:
    async def scenario(made: World) -> None:
        made.make_set(images("v1", 3, 1))
        label = await made.settles()
        made.write_roles(images("v1", 1, 1))
        await made.settles()
        kept = [name for name in made.states() if "prefill" in name]
        assert kept == [f"{SET}-{label}-prefill-0"]
        assert made.store.get(GROUP_SETS, SPACE, f"{SET}-{label}-prefill")["status"]["readyReplicas"] == 1

    run(scenario)
