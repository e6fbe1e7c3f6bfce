"""Time ends a hold whatever the operation is doing, and a hold without an operation is said to be one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.audit.models import AuditEvent
from controlplane.fleet.parameter import HOLD_LABEL
from controlplane.operations import sweep
from controlplane.operations.contract import Done, Hold, StepContext, Wait
from controlplane.operations.installation import this_installation
from controlplane.operations.models import Operation
from controlplane.operations.orphans import operation_name, orphan_holds
from controlplane.operations.runs import create_run
from tests.conftest import make_person
from tests.controlplane.operations.toy import Toy, finish, give, make_cluster, make_operation

pytestmark = pytest.mark.django_db


def expires(seconds: float) -> dict[str, Any]:
    at = timezone.now() + timedelta(seconds=seconds)
    return {"expires": {"at": at.isoformat(), "reason": "The hold at row 3 reached its maximum age of 60 s."}}


def stands(users: Any, *, seconds: float, finding: bool) -> Operation:
    """An operation at a hold: stopped by a finding, or waiting for people."""
    remember = expires(seconds)
    at_hold = (
        Hold("hold-breached", "Somebody wrote.", "Retry.", remember=remember)
        if finding
        else Wait(30, "approval 1 of row 3", who="approvers", person=True, remember=remember)
    )
    toy = Toy(plays={"toy.one": [give(at_hold)]}, looks=frozenset({"toy.one"}))
    operation = make_operation(users.operator)
    toy.advance(operation)
    return Operation.objects.get(pk=operation.pk)


@pytest.mark.parametrize("finding", [True, False])
def test_a_hold_that_is_too_old_goes_back_even_while_a_finding_holds_it(users: Any, finding: bool) -> None:
    operation = stands(users, seconds=-1, finding=finding)
    sweep.reconcile()
    operation.refresh_from_db()
    assert (operation.state, operation.phase) == ("working", "aborting")
    assert operation.memory["abort"] == {
        "by": "",
        "reason": "The hold at row 3 reached its maximum age of 60 s.",
    }
    assert AuditEvent.objects.get(action="operation.expire").target_id == str(operation.pk)
    version = operation.version
    sweep.reconcile()
    operation.refresh_from_db()
    assert operation.version == version, "once"


def test_a_hold_in_its_time_stands(users: Any) -> None:
    operation = stands(users, seconds=60, finding=True)
    sweep.reconcile()
    operation.refresh_from_db()
    assert (operation.state, operation.phase) == ("held", "forward")


def test_a_hold_that_was_passed_expires_no_more(users: Any) -> None:
    def passed(context: StepContext) -> Done:
        return Done(remember={"expires": {}})

    operation = stands(users, seconds=-1, finding=False)
    Operation.objects.filter(pk=operation.pk).update(not_before=timezone.now(), lease_until=None)
    Toy(plays={"toy.one": [passed], "toy.end": [finish("succeeded")]}).run(operation)
    sweep.reconcile()
    operation.refresh_from_db()
    assert operation.state == "succeeded"


def test_who_works_on_it_is_not_interrupted(users: Any) -> None:
    operation = stands(users, seconds=-1, finding=False)
    soon = timezone.now() + timedelta(seconds=20)
    Operation.objects.filter(pk=operation.pk).update(lease_until=soon, lease_owner="w1")
    sweep.reconcile()
    operation.refresh_from_db()
    assert operation.phase == "forward", "that step sees the clock itself"


def parameter(operation: str, installation: str = "", *, label: str = "true") -> dict[str, Any]:
    data = {"operation": operation, "installation": installation or str(this_installation().pk)}
    return {"metadata": {"name": "hold-llm.chat", "labels": {HOLD_LABEL: label}}, "data": data}


def test_a_hold_without_a_running_operation_is_an_orphan(users: Any) -> None:
    cluster = make_cluster()
    running = make_operation(users.operator, cluster=cluster)
    mine = parameter(operation_name(running.pk))

    def found(*parameters: dict[str, Any]) -> list[str]:
        return orphan_holds(cluster_id=cluster.pk, parameters=parameters)

    assert found(mine, parameter("U-999", label="released")) == []
    assert "hold-llm.chat holds for U-999, which does not run here" in found(parameter("U-999"))[0]
    other = found(parameter(operation_name(running.pk), "another"))
    assert other == [f"hold-llm.chat holds for U-{running.pk} of another installation (another)"]
    Operation.objects.filter(pk=running.pk).update(state="aborted")
    assert len(found(mine)) == 1


def test_runs_are_seen_by_those_whose_namespace_they_are_about(api: Callable[..., Any], users: Any) -> None:
    cluster = make_cluster()
    here = create_run(kind="upgrades.check_plan", args={}, cluster=cluster, namespace="chat")
    there = create_run(kind="upgrades.check_plan", args={}, cluster=cluster, namespace="secret")
    whole = create_run(kind="operations.take_over", args={}, cluster=cluster)
    person = make_person("nina", "viewer", cluster=cluster.name, namespace="chat")
    seen = {row["id"] for row in api(person).get("/api/v1/runs").json()["results"]}
    assert seen == {here.pk}
    assert api(person).get(f"/api/v1/runs/{there.pk}").status_code == 404
    assert {row["id"] for row in api(users.viewer).get("/api/v1/runs").json()["results"]} == {
        here.pk,
        there.pk,
        whole.pk,
    }
