"""Combinations and restores on the rig: what tests do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from controlplane.fleet.connections import connect_cluster
from controlplane.holds import leftover
from controlplane.holds.guards import shipped_guards
from controlplane.operations.clock import database_now
from controlplane.operations.engine import advance
from controlplane.operations.models import Operation, Run
from controlplane.recovery.models import Combination, Restore
from controlplane.recovery.parts import reaching, router
from deploy.rig import Rig, until, workloads
from tests.cluster import midway
from tests.cluster.driving import Lockstep
from workers.steps import STEPS

MakeSet = Callable[..., str]
Json = dict[str, Any]


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for upgrades, for the looks of a restore too; it leaves the controller the seconds that it takes to drain."""
    midway.look_often(monkeypatch)
    monkeypatch.setattr(reaching, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(router, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(leftover, "LEAK_AFTER", 3.0)


def capture(lockstep: Lockstep, namespace: str, name: str, *, verified: bool = True) -> Combination:
    """What stands, captured through the API; verified as a proof would."""
    workload = lockstep.observe(namespace, name)
    run = asked(lockstep, f"workloads/{workload.pk}/capture", {"reason": "before the test"})
    assert run.state == "done", run.problem
    found = Combination.objects.get(pk=run.result["combination"])
    if verified:
        from controlplane.audit.actor import worker
        from controlplane.recovery.services import verify_combination

        verify_combination(combination_id=found.pk, evidence={"kind": "test", "id": 1}, actor=worker("test"))
        found.refresh_from_db()
    return found


@contextmanager
def edited_policy(rig: Rig) -> Iterator[str]:
    """Somebody lets writes pass that the policy cannot judge; what is said of that. Afterwards all stand as shipped."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/lockstep-rollout-hold"
    rig.client("stranger").patch(path, {"spec": {"failurePolicy": "Ignore"}})
    try:
        yield "ValidatingAdmissionPolicy lockstep-rollout-hold differs from the shipped one"
    finally:
        rig.apply([dict(document) for document in shipped_guards()])


def asked(lockstep: Lockstep, path: str, body: Json | None = None) -> Run:
    """A Run that a request asks for, carried out."""
    said = lockstep.post(lockstep.operator, path, body or {})
    assert said.status_code == 202, said.json()
    pk = said.json()["id"]
    lockstep.until(path, lambda: Run.objects.get(pk=pk).state != "waiting")
    return Run.objects.get(pk=pk)


def restore(lockstep: Lockstep, found: Combination, **body: Any) -> Restore:
    """A restore that the operator starts."""
    found.refresh_from_db()
    said = start(lockstep, found, **body)
    assert said.status_code == 201, said.json()
    return Restore.objects.select_related("operation").get(pk=said.json()["id"])


def start(lockstep: Lockstep, found: Combination, *, client: Any = None, **body: Any) -> Any:
    """The answer to a start."""
    sent = {"reason": "it was better before", "confirm": found.name, **body}
    return lockstep.post(
        client or lockstep.operator, f"combinations/{found.pk}/restore", sent, version=found.version
    )


def turned(
    lockstep: Lockstep, restored: Restore, outcome: str = "succeeded", limit_s: float = 90
) -> Operation:
    """Turn to the end of the restore."""
    operation = Operation.objects.get(pk=restored.operation_id)

    def over() -> bool:
        from controlplane.operations.engine import wake

        now = lockstep.state(operation)
        assert now.state != "held", now.finding
        wake(operation_id=now.pk)
        return now.state in ("succeeded", "aborted", "failed")

    lockstep.until(f"restore {outcome}", over, limit_s=limit_s)
    assert lockstep.state(operation).state == outcome, lockstep.story()
    return operation


def held(lockstep: Lockstep, restored: Restore, code: str, limit_s: float = 60) -> Json:
    """Turn until a finding holds the restore."""
    operation = Operation.objects.get(pk=restored.operation_id)
    lockstep.until(f"held: {code}", lambda: lockstep.state(operation).state == "held", limit_s=limit_s)
    finding: Json = operation.finding
    assert finding["code"] == code, finding
    return finding


def parts(lockstep: Lockstep, restored: Restore) -> list[tuple[str, bool]]:
    """(part, done) as the API shows them."""
    shown = lockstep.operator.get(f"/api/v1/restores/{restored.pk}").json()
    return [(part["name"], part["done"]) for part in shown["parts"]]


def image_ids(lockstep: Lockstep, namespace: str, name: str) -> set[str]:
    """What the set's pods run, from the rig."""
    pods = workloads.pods_of(lockstep.rig.client(), namespace, f"{workloads.NAME_LABEL}={name}")
    return {each["imageID"] for pod in pods for each in pod["status"].get("containerStatuses") or ()}


def rolled_out(rig: Rig, namespace: str, name: str, roles: list[Json], limit_s: float = 90) -> str:
    """Somebody rolls the set out to other roles by hand, to the end; the new revision's label."""
    client = rig.client()

    def labels() -> set[str]:
        return {
            child["metadata"]["labels"][workloads.REVISION_LABEL]
            for child in workloads.lws_of(client, namespace, name)
        }

    before = labels()
    client.patch(workloads.set_path(namespace, name), {"spec": {"roles": roles}})
    until(
        "rolled out",
        lambda: not labels() & before and workloads.settled(client, namespace, name),
        limit_s=limit_s,
    )
    return labels().pop()


def upgraded(lockstep: Lockstep, namespace: str, image: str = midway.V2) -> Operation:
    """An upgrade to its end: the old sets are gone."""
    operation = lockstep.upgrade(namespace, "model", image=image)
    assert lockstep.finished(operation) == "succeeded", lockstep.story()
    return operation


def roles_written(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> tuple[str, Restore, Operation]:
    """A restore after an upgrade that has just written the recorded roles; the label of the recorded revision."""
    label = make_set(roles=midway.small_roles())
    found = capture(lockstep, namespace, "model")
    upgraded(lockstep, namespace)
    restored = restore(lockstep, found)
    operation = Operation.objects.get(pk=restored.operation_id)
    lockstep.until(
        "roles written",
        lambda: lockstep.state(operation).steps.filter(name="recovery.write_roles", state="done").exists(),
    )
    return label, restored, operation


def midway_with_combination(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> midway.Midway:
    """An upgrade at its first hold, of a set whose combination was captured before."""
    old = make_set(roles=midway.small_roles())
    capture(lockstep, namespace, "model")
    operation = lockstep.upgrade(namespace, "model", image=midway.V2)
    found = midway.Midway(lockstep, namespace, operation, old)
    found.reached("waiting")
    assert found.counts() == found.first_row()
    return found


class Lost(BaseException):
    """The worker is gone: no outcome is written, the lease runs out."""


class Losses:
    """Loses the worker right after every single write of every step, once each."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, int]] = set()
        self.step = ""

    def connect(self, cluster: Any, *, on_call: Any = None) -> Any:
        """A client whose writes are the last thing that the worker does."""
        count = 0

        def hook(phase: str, verb: str, resource: Any, name: str) -> None:
            nonlocal count
            on_call(phase, verb, resource, name)
            if phase == "after" and verb in ("create", "replace", "patch", "delete"):
                count += 1
                if (self.step, count) not in self.taken:
                    self.taken.add((self.step, count))
                    raise Lost

        return connect_cluster(cluster, on_call=hook)

    @property
    def steps(self) -> set[str]:
        """Steps that have lost a worker."""
        return {step for step, _ in self.taken}


def turned_with_losses(lockstep: Lockstep, restored: Restore, losses: Losses, limit_s: float = 150) -> None:
    """Turn to the end, with a new worker after each loss."""
    operation = Operation.objects.get(pk=restored.operation_id)

    def over() -> bool:
        now = lockstep.state(operation)
        assert now.state != "held", now.finding
        pending = now.steps.filter(state="pending").order_by("index").first()
        losses.step = pending.name if pending else ""
        try:
            advance(operation_id=now.pk, steps=STEPS, connect=losses.connect, owner="test")
        except Lost:
            past = database_now() - timedelta(seconds=1)
            Operation.objects.filter(pk=now.pk).update(lease_until=past, not_before=past)
        return str(lockstep.state(operation).state) == "succeeded"

    until("restored", over, limit_s=limit_s, every_s=0.05)
