"""Deployments, Jobs and StatefulSets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.demo.emulator.controllers.names import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    condition,
)
from deploy.rig.workloads import is_ready
from tests.demo.emulator.controllers.test_sets import run
from tests.demo.emulator.controllers.world import SPACE, World, quick

Doc = dict[str, Any]
LABELS = {"app": "router"}


def template(tag: str = "v1", **spec: Any) -> Doc:
    container = {"name": "main", "image": f"registry.example/router:{tag}"}
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container], **spec}}


def workload(kind: str, replicas: int, tag: str = "v1", **spec: Any) -> Doc:
    body = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template(tag), **spec}
    metadata = {"name": "router", "namespace": SPACE}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body}


def job(tag: str, **spec: Any) -> Doc:
    body = {"template": template(tag, restartPolicy="Never"), "backoffLimit": 1, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "try", "namespace": SPACE},
        "spec": body,
    }


def images(made: World) -> list[str]:
    """Tags of what serves."""
    return sorted(
        each["spec"]["containers"][0]["image"].partition(":")[2] for each in made.pods() if is_ready(each)
    )


def roll(made: World, tag: str) -> None:
    made.admin.patch(DEPLOYMENTS, SPACE, "router", {"spec": {"template": template(tag)}})


def test_a_rolling_update_never_serves_with_less() -> None:
    async def scenario(made: World) -> None:
        pace = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        made.admin.create(workload("Deployment", 3, strategy=pace))
        await made.until("three serve", lambda: images(made) == ["v1"] * 3)
        roll(made, "v2")
        most, least = 3, 3
        with made.store.subscribe(PODS) as changes:
            while images(made) != ["v2"] * 3 or len(made.pods()) != 3:
                await changes.next(0.05)
                alive = [each for each in made.pods() if "deletionTimestamp" not in each["metadata"]]
                most, least = max(most, len(alive)), min(least, len(images(made)))
        assert (most, least) == (4, 3)
        stored = await made.until("told", lambda: updated(made))
        assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
        assert condition(stored, "Progressing")["reason"] == "NewReplicaSetAvailable"

    # Pods end after others have become ready, so that "serving" is what is seen.
    run(scenario, times=quick(end_s=0.02))


def updated(made: World) -> Doc | None:
    stored = made.store.get(DEPLOYMENTS, SPACE, "router")
    status = stored["status"]
    done = status["updatedReplicas"] == status["availableReplicas"] == status["replicas"] == 3
    return stored if done and status["observedGeneration"] == stored["metadata"]["generation"] else None


def test_the_template_before_is_the_replica_set_before() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("Deployment", 3))
        await made.until("three serve", lambda: images(made) == ["v1"] * 3 and updated(made))
        first = {each["metadata"]["uid"] for each in made.store.list(REPLICA_SETS, SPACE)}
        roll(made, "v2")
        await made.until("updated", lambda: images(made) == ["v2"] * 3 and updated(made))
        roll(made, "v1")
        await made.until("back", lambda: images(made) == ["v1"] * 3 and updated(made))
        sets = made.store.list(REPLICA_SETS, SPACE)
        assert len(sets) == 2 and first < {each["metadata"]["uid"] for each in sets}
        back = next(each for each in sets if each["metadata"]["uid"] in first)
        assert back["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"

    run(scenario)


def test_an_update_that_cannot_serve_stands_still_and_is_given_up() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("Deployment", 4, progressDeadlineSeconds=1))
        await made.until("four serve", lambda: images(made) == ["v1"] * 4)
        roll(made, "v2-never-ready")

        def reason() -> str:
            return str(condition(made.store.get(DEPLOYMENTS, SPACE, "router"), "Progressing").get("reason"))

        await made.until("given up", lambda: reason() == "ProgressDeadlineExceeded")
        assert images(made) == ["v1"] * 3, "a quarter may be missing"
        await made.quiet(0.3)
        assert reason() == "ProgressDeadlineExceeded"

    run(scenario)


def test_recreate_ends_the_old_pods_first() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("Deployment", 2, strategy={"type": "Recreate"}))
        await made.until("two serve", lambda: images(made) == ["v1"] * 2)
        roll(made, "v2")
        with made.store.subscribe(PODS) as changes:
            while images(made) != ["v2"] * 2:
                await changes.next(0.05)
                assert len({each["spec"]["containers"][0]["image"] for each in made.pods()}) < 2

    run(scenario)


def test_everything_of_a_deployment_goes_with_it() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("Deployment", 2))
        await made.until("two serve", lambda: len(images(made)) == 2)
        made.admin.delete(DEPLOYMENTS, SPACE, "router", propagation="Foreground")
        await made.until("gone", lambda: made.store.find(DEPLOYMENTS, SPACE, "router") is None)
        assert not made.pods() and not made.store.list(REPLICA_SETS, SPACE)

    run(scenario)


@pytest.mark.parametrize(("tag", "ends", "pods"), [("v1", "Complete", 1), ("v1-crash", "Failed", 2)])
def test_jobs_end(tag: str, ends: str, pods: int) -> None:
    async def scenario(made: World) -> None:
        made.admin.create(job(tag))
        stored = await made.until("it ends", lambda: ended(made))
        assert [each["type"] for each in stored["status"]["conditions"]] == [ends]
        assert len(made.pods()) == pods
        await made.quiet(0.1)
        assert len(made.pods()) == pods
        made.admin.delete(JOBS, SPACE, "try")
        await made.until("its pods go with it", lambda: not made.pods())

    run(scenario)


def ended(made: World) -> Doc | None:
    stored = made.store.get(JOBS, SPACE, "try")
    return stored if (stored.get("status") or {}).get("conditions") else None


def test_a_job_that_hangs_has_its_deadline() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(job("v1-never-ready", activeDeadlineSeconds=1))
        stored = await made.until("it ends", lambda: ended(made))
        assert stored["status"]["conditions"][0]["reason"] == "DeadlineExceeded"
        await made.until("its pod goes", lambda: not made.pods())

    run(scenario)


def test_pods_of_a_stateful_set_come_in_order_and_back_under_their_name() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("StatefulSet", 3, serviceName="router"))
        seen: list[str] = []
        with made.store.subscribe(PODS) as changes:
            while len(images(made)) != 3:
                seen += [
                    each.new["metadata"]["name"] for each in await changes.next(0.05) if each.type == "ADDED"
                ]
        assert seen == ["router-0", "router-1", "router-2"]
        uid = made.store.get(PODS, SPACE, "router-1")["metadata"]["uid"]
        made.admin.delete(PODS, SPACE, "router-1")
        await made.until("back", lambda: uid not in str(made.pods()) and len(images(made)) == 3)
        made.admin.patch(STATEFUL_SETS, SPACE, "router", {"spec": {"template": template("v2")}})
        await made.until("updated", lambda: images(made) == ["v2"] * 3)

    run(scenario)


def test_a_namespace_takes_everything_along() -> None:
    async def scenario(made: World) -> None:
        made.admin.create(workload("Deployment", 2))
        await made.until("two serve", lambda: len(images(made)) == 2)
        made.admin.delete("namespaces", "", SPACE)
        await made.until("gone", lambda: made.store.find("namespaces", "", SPACE) is None)
        assert not made.pods() and not made.store.list(REPLICA_SETS, SPACE)
        await asyncio.sleep(0)

    run(scenario)
