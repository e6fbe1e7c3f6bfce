"""The sweep over scalers that an ended operation has left paused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.fleet.parameter import HOLD_LABEL
from controlplane.holds.parameter import parameter_name
from controlplane.holds.scalers.mark import PAUSED
from controlplane.holds.scalers.orphans import (
    GIVE_BACK_ORPHANS,
    ask_to_give_back,
    give_back_orphans,
    left_paused,
)
from controlplane.holds.scalers.steps import pause_scalers
from controlplane.kube.resources import LEASES
from controlplane.operations.clock import database_now
from controlplane.operations.installation import LEASE_NAME, LEASE_NAMESPACE
from controlplane.operations.models import Operation, Run
from controlplane.operations.runs import carry_out_run
from policy.rollout.scalers import HPA, SCALED_OBJECT
from tests.conftest import Cast
from tests.controlplane.holds.scaler_world import ScalerWorld, context_of, hpa, scaled_object
from tests.controlplane.holds.scaling import gives_back, pauses, superseded, without_versions
from tests.controlplane.operations.toy import make_cluster
from workers.steps import RUNS

pytestmark = pytest.mark.django_db
Json = dict[str, Any]


def ends(operation: Operation, state: str = "failed") -> None:
    """It ended without giving anything back."""
    operation.targets.update(released=True)
    Operation.objects.filter(pk=operation.pk).update(state=state, finished_at=database_now())


def sweep(operation: Operation, world: ScalerWorld) -> Json:
    return give_back_orphans(kube=world, now=database_now(), cluster_id=operation.cluster_id)  # type: ignore[arg-type]


def nothing(left: list[str] | None = None) -> Json:
    return {"given_back": [], "left": left or [], "findings": []}


def test_what_an_ended_operation_left_is_given_back_once(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("elsewhere", target="another"))
    before = {key: without_versions(body) for key, body in world.objects.items()}
    pauses(operation, world)
    assert sweep(operation, world) == nothing(), "while it runs it is the operation's own"
    ends(operation)
    assert sweep(operation, world) == {**nothing(), "given_back": ["llm/HorizontalPodAutoscaler busy"]}
    assert {key: without_versions(body) for key, body in world.objects.items()} == before
    operation.refresh_from_db()
    assert operation.memory["scalers"] == {}
    (row,) = AuditEvent.objects.filter(action="scaler.give_back")
    assert row.target_id == "east/llm/HorizontalPodAutoscaler busy" and f"U-{operation.pk}" in row.reason
    assert row.after["original"] == {"spec": {"behavior": None, "minReplicas": 2}}
    assert sweep(operation, world) == nothing()


def test_a_pause_that_nobody_remembers_is_found_by_its_record(operation: Operation) -> None:
    """A worker slept through the end of its operation, and wrote then."""
    world = ScalerWorld(hpa())
    pause_scalers(context_of(operation, world))
    ends(operation, "aborted")
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]


def test_a_set_that_another_operation_has_taken_is_left_to_it(operation: Operation, users: Cast) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    second = superseded(operation, users)
    assert sweep(operation, world) == nothing()
    ends(second)
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]


def test_a_set_that_is_still_held_is_for_a_person(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    ends(operation)
    name = parameter_name("llm", "chat")
    held = {"name": name, "namespace": "lockstep", "labels": {HOLD_LABEL: "true"}}
    world.put({"kind": "ConfigMap", "metadata": held, "data": {}})
    (left,) = sweep(operation, world)["left"]
    assert "still held" in left and PAUSED in json.dumps(world.at(HPA))
    world.put({"kind": "ConfigMap", "metadata": {**held, "labels": {HOLD_LABEL: "released"}}, "data": {}})
    assert sweep(operation, world)["given_back"]


def test_records_that_are_not_ours_or_not_readable_are_said_and_left(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("other"))
    pauses(operation, world)
    ends(operation)
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    foreign = json.dumps({**mark, "installation": "elsewhere"})
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: foreign}}})
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: "{"}}}, "other")
    written = len(world.writes)
    left = sweep(operation, world)["left"]
    assert len(left) == 2 and "another installation (elsewhere)" in left[0] and "cannot be read" in left[1]
    assert len(world.writes) == written
    operation.refresh_from_db()
    assert operation.memory["scalers"], "still remembered"


def test_one_refusal_does_not_keep_the_others(operation: Operation) -> None:
    keda = scaled_object("cron")
    keda["status"] = {"conditions": [{"type": "Paused", "status": "True"}]}
    world = ScalerWorld(hpa(), keda)
    pauses(operation, world)
    ends(operation)
    world.refused = {"busy"}
    said = sweep(operation, world)
    assert said["given_back"] == ["llm/ScaledObject cron"] and "webhook denied" in said["left"][0]
    world.refused = set()
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]
    assert PAUSED not in json.dumps(world.at(SCALED_OBJECT, "cron"))


def test_what_somebody_changed_is_said_and_recorded(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    ends(operation)
    world.edit(HPA, {"spec": {"minReplicas": 4}})
    (found,) = sweep(operation, world)["findings"]
    assert found["fields"] == [{"path": "spec.minReplicas", "original": 2, "now": 4}]
    (row,) = AuditEvent.objects.filter(action="scaler.give_back")
    assert row.after["kept"] == found["fields"]


def test_without_the_lease_nothing_is_given_back(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    ends(operation)
    world.objects["Lease", "lockstep", "lockstep-installation"]["spec"]["holderIdentity"] = "somebody"
    assert "another installation" in sweep(operation, world)["left"][0]
    assert len(world.writes) == 1


# --- what a rescue has left


def of_a_rescue(world: ScalerWorld, operation: Operation) -> None:
    """A run of the rescue program has paused it and was lost then."""
    pauses(operation, world)
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    lost = json.dumps({**mark, "operation": "rescue-1", "installation": "rescue-1"})
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: lost}}})


def test_what_a_lost_rescue_has_left_is_given_back_once_the_cluster_is_ours(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    of_a_rescue(world, operation)
    lease = world.objects[LEASES.kind, LEASE_NAMESPACE, LEASE_NAME]
    mine, lease["spec"]["holderIdentity"] = lease["spec"]["holderIdentity"], "rescue-1"
    ends(operation)
    assert "another installation (rescue-1)" in sweep(operation, world)["left"][0]
    lease["spec"]["holderIdentity"] = mine
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]
    stands = without_versions(world.at(HPA))
    assert {key: stands[key] for key in ("spec", "kind")} == {key: before[key] for key in ("spec", "kind")}


def test_what_a_lost_rescue_has_left_is_inherited_by_the_operation_that_has_the_set(
    operation: Operation,
) -> None:
    world = ScalerWorld(hpa())
    before = world.at(HPA)["spec"]
    of_a_rescue(world, operation)
    assert sweep(operation, world) == nothing(), "an operation has taken the set"
    gives_back(operation, world)
    assert world.at(HPA)["spec"] == before and PAUSED not in json.dumps(world.at(HPA))


def test_it_is_given_back_with_the_set_even_where_it_aims_at_nothing_now(operation: Operation) -> None:
    """It followed a revision that is gone, so the operation that has the set now never paused it."""
    world = ScalerWorld(hpa(), hpa("other"))
    before = world.at(HPA)["spec"]
    of_a_rescue(world, operation)
    Operation.objects.filter(pk=operation.pk).update(memory={**operation.memory, "scalers": {}})
    operation.refresh_from_db()
    gone = {"spec": {"scaleTargetRef": {"name": "chat-gone-decode"}}}
    world.edit(HPA, gone)
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    another = json.dumps({**mark, "set": {**mark["set"], "uid": "another"}})
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: another}}}, "other")
    assert gives_back(operation, world).result["given_back"] == ["HorizontalPodAutoscaler busy"]
    assert world.at(HPA)["spec"] == {
        **before,
        "scaleTargetRef": {**before["scaleTargetRef"], **gone["spec"]["scaleTargetRef"]},
    }
    assert world.at(HPA, "other")["metadata"]["annotations"][PAUSED] == another, "of another set"


def test_a_controller_that_writes_its_status_meanwhile_is_no_reason_to_leave_it(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    ends(operation)
    world.before_write = lambda: world.edit(HPA, {"status": {"currentReplicas": 2}})
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]
    pauses(operation, world)
    world.before_write = lambda: world.edit(HPA, {"metadata": {"annotations": {PAUSED: None}}})
    assert "moved on" in sweep(operation, world)["left"][0], (
        "somebody has taken the record off: looked at anew next time"
    )


def test_a_rescue_that_begins_during_the_look_keeps_its_pauses(operation: Operation) -> None:
    """It takes the Lease, then pauses: who sees the pause finds the Lease taken."""
    world = ScalerWorld(hpa())
    lease = world.objects[LEASES.kind, LEASE_NAMESPACE, LEASE_NAME]
    ends(operation)
    listed = world.list

    def rescued_meanwhile(resource: Any, *where: Any, **options: Any) -> Any:
        world.list = listed  # type: ignore[method-assign]
        lease["spec"]["holderIdentity"] = "rescue-1"
        of_a_rescue(world, operation)
        return listed(resource, *where, **options)

    world.list = rescued_meanwhile  # type: ignore[method-assign]
    assert sweep(operation, world)["given_back"] == [] and PAUSED in json.dumps(world.at(HPA))


def test_the_last_look_says_what_is_left_to_a_person(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    of_a_rescue(world, operation)
    ends(operation)
    held = {"name": parameter_name("llm", "chat"), "namespace": "lockstep", "labels": {HOLD_LABEL: "true"}}
    world.put({"kind": "ConfigMap", "metadata": held, "data": {}})
    assert left_paused(operation.cluster_id) == []
    for _ in range(2):
        Run.objects.update(created_at=database_now() - timedelta(minutes=2))
        assert ask_to_give_back() == 1, "soon again, as something is left"
        (run,) = Run.objects.filter(kind=GIVE_BACK_ORPHANS, state="waiting")
        carry_out_run(run_id=run.pk, runs=RUNS, connect=lambda *_: world, owner="test")  # type: ignore[arg-type,return-value]
        (said,) = left_paused(operation.cluster_id)
        assert "HorizontalPodAutoscaler busy" in said and "still held" in said


def test_an_hpa_that_bears_its_makers_record_is_left_alone(operation: Operation) -> None:
    """Knative copies all annotations of a PodAutoscaler onto the HPA that it makes."""
    world = ScalerWorld(hpa())
    pauses(operation, world)
    ends(operation)
    copied = world.at(HPA)
    owner = {"kind": "PodAutoscaler", "name": "boss", "uid": "1", "controller": True}
    copied["metadata"] = {**copied["metadata"], "name": "made", "uid": "made", "ownerReferences": [owner]}
    world.put(copied)
    made = world.at(HPA, "made")
    assert sweep(operation, world)["given_back"] == ["llm/HorizontalPodAutoscaler busy"]
    assert world.at(HPA, "made") == made


# --- when it looks


def test_it_looks_now_and_then_and_soon_where_it_has_to(operation: Operation) -> None:
    cluster = operation.cluster
    make_cluster("foreign", writes="foreign")
    looks = Run.objects.filter(kind=GIVE_BACK_ORPHANS)
    world = ScalerWorld(hpa())

    def carried_out() -> None:
        (run,) = looks.filter(state="waiting")
        said = carry_out_run(run_id=run.pk, runs=RUNS, connect=lambda *_: world, owner="test")  # type: ignore[arg-type,return-value]
        assert said == "done"

    assert ask_to_give_back() == 1, "where we may write"
    assert ask_to_give_back() == 0, "one at a time"
    carried_out()
    assert ask_to_give_back() == 0
    earlier = database_now() - timedelta(minutes=2)
    looks.update(created_at=earlier)
    assert ask_to_give_back() == 0, "nothing is known to be left"
    pauses(operation, world)
    ends(operation)
    assert ask_to_give_back() == 1
    carried_out()
    assert looks.latest("pk").result["given_back"]
    looks.update(created_at=earlier)
    assert ask_to_give_back() == 0
    looks.update(created_at=database_now() - timedelta(hours=1))
    assert ask_to_give_back() == 1
    carried_out()
    looks.update(created_at=database_now() - timedelta(hours=1))
    assert ask_to_give_back() == 1
    given = [run.result["given_back"] for run in looks.filter(state="done").order_by("pk")]
    assert given == [["llm/HorizontalPodAutoscaler busy"], []], "of those that came to nothing one is kept"
    assert cluster.operations.count() == 1
