"""Scalers of a restore and of a rescue, on a cluster in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.holds.scalers.mark import PAUSED
from controlplane.holds.scalers.pausing import TAKEN_UP_WITHIN
from controlplane.holds.writer import SetWriter
from controlplane.kube.errors import Denied
from controlplane.operations.contract import Done, Hold, Wait
from controlplane.operations.models import Operation
from controlplane.recovery.parts.scaling import give_back_alone, pause_alone, put_scalers
from controlplane.recovery.parts.task import Task
from policy.rollout.scalers import HPA, KEDA_PAUSED, KEDA_PAUSED_REPLICAS, POD_AUTOSCALER, SCALED_OBJECT
from tests.conftest import Cast
from tests.controlplane.fleet.world import UID
from tests.controlplane.holds.scaler_world import SET, ScalerWorld, hpa, pod_autoscaler, scaled_object
from tests.controlplane.holds.scaling import memory, pauses, without_versions
from tests.controlplane.operations.toy import make_cluster, make_operation

pytestmark = pytest.mark.django_db
Json = dict[str, Any]


def task_of(
    world: ScalerWorld, *, run: str = "rescue-1", recorded: list[Json] | None = None, waited: float = 0.0
) -> Task:
    """One step of one run of the rescue program."""
    now = datetime.now(UTC)
    writer = SetWriter(kube=world, operation=run, installation=run, fence=9, uid=UID, **SET)  # type: ignore[arg-type]
    return Task(
        writer=writer,
        document={"scalers": recorded or []},
        memory={},
        now=now,
        since=now - timedelta(seconds=waited),
        step="1",
        stable_for=0.0,
        stuck_after=9.0,
        guards=(),
    )


def stands(world: ScalerWorld) -> dict[Any, Json]:
    return {key: without_versions(body) for key, body in world.objects.items()}


def quiet(name: str = "cron", **annotations: str) -> Json:
    """A ScaledObject that KEDA calls paused."""
    found = scaled_object(name, annotations=annotations)
    return {**found, "status": {"conditions": [{"type": "Paused", "status": "True"}]}}


def test_a_rescue_keeps_what_was_on_the_object_alone() -> None:
    world = ScalerWorld(hpa(), quiet(), hpa("elsewhere", target="another"))
    before = stands(world)
    said = pause_alone(task_of(world))
    assert isinstance(said, Done) and said.result["paused"] == [f"{HPA} busy", f"{SCALED_OBJECT} cron"]
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    assert (mark["installation"], mark["set"]["uid"]) == ("rescue-1", UID)
    given = give_back_alone(task_of(world))
    assert isinstance(given, Done) and given.result["given_back"] == said.result["paused"]
    assert stands(world) == before
    written = len(world.writes)
    assert isinstance(give_back_alone(task_of(world)), Done) and len(world.writes) == written


def test_a_second_run_goes_on_where_the_first_was_lost() -> None:
    world = ScalerWorld(hpa(), quiet())
    before = stands(world)
    pause_alone(task_of(world, run="rescue-1"))
    pause_alone(task_of(world, run="rescue-2"))
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    assert mark["installation"] == "rescue-2" and mark["original"]["spec"]["minReplicas"] == 2
    written = len(world.writes)
    pause_alone(task_of(world, run="rescue-2"))
    assert len(world.writes) == written, "once in a run"
    give_back_alone(task_of(world, run="rescue-3"))
    assert stands(world) == before


def test_what_an_operation_has_paused_is_taken_over(users: Cast) -> None:
    world = ScalerWorld(hpa())
    before = stands(world)
    operation: Operation = make_operation(
        users.operator, cluster=make_cluster(writes="ours"), targets=[UID], steps=["toy.end"], memory=memory()
    )
    pauses(operation, world)
    pause_alone(task_of(world))
    give_back_alone(task_of(world))
    assert stands(world) == before


def test_what_somebody_changed_meanwhile_stays_and_is_said() -> None:
    world = ScalerWorld(hpa())
    pause_alone(task_of(world))
    world.edit(HPA, {"spec": {"maxReplicas": 4, "minReplicas": 3}})
    given = give_back_alone(task_of(world))
    assert isinstance(given, Done) and "spec.minReplicas" in given.result["findings"][0]
    assert (world.at(HPA)["spec"]["minReplicas"], world.at(HPA)["spec"]["maxReplicas"]) == (3, 4)


def test_what_cannot_be_paused_stops_a_rescue_before_it_writes() -> None:
    world = ScalerWorld(hpa(), pod_autoscaler("kpa"))
    said = pause_alone(task_of(world))
    assert isinstance(said, Hold) and f"{POD_AUTOSCALER} kpa" in said.sentence and not world.writes
    world = ScalerWorld(hpa())
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: "{"}}})
    said = pause_alone(task_of(world))
    assert isinstance(said, Hold) and said.code == "pause-unreadable" and not world.writes


def test_keda_has_some_seconds() -> None:
    world = ScalerWorld(scaled_object())
    assert isinstance(pause_alone(task_of(world)), Wait)
    late = pause_alone(task_of(world, waited=TAKEN_UP_WITHIN + 1))
    assert isinstance(late, Hold) and "is its operator running?" in late.sentence


def test_one_that_is_refused_keeps_the_others_from_nothing() -> None:
    world = ScalerWorld(hpa("a"), hpa("b"))
    pause_alone(task_of(world))
    world.refused = {"a"}
    with pytest.raises(Denied):
        give_back_alone(task_of(world))
    assert PAUSED not in json.dumps(world.at(HPA, "b")) and PAUSED in json.dumps(world.at(HPA, "a"))
    world.refused = set()
    give_back_alone(task_of(world))
    assert PAUSED not in json.dumps(world.at(HPA, "a"))


@pytest.mark.parametrize("since", [{KEDA_PAUSED: "true"}, {KEDA_PAUSED: "true", KEDA_PAUSED_REPLICAS: "3"}])
def test_a_pause_that_somebody_has_added_since_is_not_what_was_recorded(since: Json) -> None:
    """KEDA was told to stand still after the good combination was recorded: it moves again."""
    world = ScalerWorld(quiet(**since))
    body = world.at(SCALED_OBJECT, "cron")
    recorded: Json = {"kind": SCALED_OBJECT, "name": "cron"}
    recorded["settings"] = {"spec": body["spec"], "annotations": {}}
    said = put_scalers(task_of(world, recorded=[recorded]), names=[f"{SCALED_OBJECT} cron"])
    assert isinstance(said, Done) and said.result["written"] == [f"{SCALED_OBJECT} cron"]
    assert world.at(SCALED_OBJECT, "cron")["metadata"]["annotations"] == {"team": "a"}
