"""Admission policies that are gone or not as shipped, when a restore needs its hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controlplane.operations.models import Operation
from controlplane.recovery.models import Combination
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import small_roles
from tests.cluster.restoring import (
    capture,
    edited_policy,
    held,
    look_often,
    midway_with_combination,
    restore,
    roles_written,
    turned,
    upgraded,
)

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation whose plans need votes."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


def test_nothing_is_written_anew_under_a_hold_that_nobody_enforces(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    upgraded(lockstep, namespace)
    before = lockstep.rig.client().get(workloads.set_path(namespace, "model"))["spec"]
    with edited_policy(lockstep.rig) as said:
        restored = restore(lockstep, found)
        assert said in held(lockstep, restored, "hold-not-proved")["sentence"]
        assert lockstep.rig.client().get(workloads.set_path(namespace, "model"))["spec"] == before
    answer = lockstep.verb(Operation.objects.get(pk=restored.operation_id), "retry", {"reason": "mended"})
    assert answer.status_code == 200, answer.json()
    turned(lockstep, restored)


def test_a_guard_that_is_not_as_shipped_is_told_until_a_person_mends_it(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label, restored, operation = roles_written(lockstep, namespace, make_set)
    with edited_policy(lockstep.rig) as said:
        finding = held(lockstep, restored, "hold-breached")
        assert said in finding["sentence"] and "as shipped" in finding["next_action"]
        assert lockstep.verb(operation, "retry").status_code == 200
        assert said in held(lockstep, restored, "hold-not-proved")["sentence"], "a person's to mend"
    assert lockstep.verb(operation, "retry").status_code == 200
    turned(lockstep, restored)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label


def test_going_back_a_guard_that_is_not_as_shipped_is_told_once_and_stops_nobody(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = midway_with_combination(lockstep, namespace, make_set)
    found = Combination.objects.latest("pk")
    with edited_policy(lockstep.rig) as said:
        restored = restore(lockstep, found)
        assert said in held(lockstep, restored, "hold-breached")["sentence"]
        operation = Operation.objects.get(pk=restored.operation_id)
        assert lockstep.verb(operation, "retry").status_code == 200
        turned(lockstep, restored)
    assert midway.counts() == midway.before()


def test_a_deleted_guard_is_made_again_and_told(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label, restored, operation = roles_written(lockstep, namespace, make_set)
    client = lockstep.rig.client("stranger")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/lockstep-rollout-hold"
    stood = client.get(path)["spec"]
    client.delete(path)
    finding = held(lockstep, restored, "hold-breached")
    assert "lockstep-rollout-hold is missing" in finding["sentence"]
    assert client.get(path)["spec"] == stood, "as shipped, to the letter"
    assert lockstep.verb(operation, "retry").status_code == 200
    turned(lockstep, restored)
    steps = lockstep.state(operation).steps
    assert steps.filter(name="recovery.prove_hold", state="done").count() == 2, "proved again"
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
