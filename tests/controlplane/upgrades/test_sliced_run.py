"""Slice after slice through the real engine and steps, against a cluster in memory around the recorded sliced set."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.audit.actor import Actor
from controlplane.fleet.models import Cluster, Workload
from controlplane.holds import proof
from controlplane.holds.parameter import is_holding
from controlplane.operations import services as verbs
from controlplane.operations.clock import database_now
from controlplane.operations.engine import advance, wake
from controlplane.operations.models import FINISHED, Operation
from controlplane.upgrades import services
from controlplane.upgrades.checking import check_plan
from controlplane.upgrades.models import Plan, UpdateRecord
from policy.rollout.box import Key
from tests.conftest import Cast
from tests.controlplane.upgrades.sliced_world import SlicedWorld
from workers.steps import STEPS

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
ACTOR = Actor(name="olga", kind="person")
ROLES = {"prefill": 2, "decode": 1}


class Run:
    """A started upgrade of the recorded set."""

    def __init__(self, world: SlicedWorld, users: Cast, **options: Any) -> None:
        self.world, now, metadata = world, database_now(), world.body["metadata"]
        cluster = Cluster.objects.create(
            name="sliced",
            context="sliced",
            environment="development",
            lws_version="0.10.0",
            writes="ours",
            lease_transitions=1,
            observed_at=now,
            created_at=now,
            updated_at=now,
        )
        workload = Workload.objects.create(
            cluster=cluster,
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            state="settled",
            observed_at=now,
            observed_fence=1,
        )
        draft = {"roles": {role: {"image": "registry.example/engine:v9"} for role in ROLES}}
        who: Json = {"actor": ACTOR}
        plan = services.draft_plan(
            workload_id=workload.pk,
            title="",
            reason="test",
            draft=draft,
            options={"stable_for": 0, "promote": "manual", **options},
            requester=users.operator,
            **who,
        )
        check_plan(kube=world, now=database_now(), plan=plan.pk, version=plan.version)  # type: ignore[arg-type]
        self.plan = Plan.objects.get(pk=plan.pk)
        assert self.plan.state == "ready", (self.plan.problem, self.plan.hazards)
        for hazard in self.plan.hazards:
            if hazard["severity"] == "warn":
                services.acknowledge_hazard(
                    plan_id=plan.pk, version=self.version(), hazard=hazard["id"], user=users.operator, **who
                )
        same: Json = {"plan_id": plan.pk, "user": users.operator, "origin": None, **who}
        services.request_approval(version=self.version(), **same)
        self.operation = services.start_upgrade(version=self.version(), **same)
        self.old = str(self.operation.memory["old"])

    def version(self) -> int:
        """The plan's present version."""
        return int(Plan.objects.values_list("version", flat=True).get(pk=self.plan.pk))

    def turn(self, until: str, *, promote: bool = True, limit: int = 400) -> Operation:
        """Advance, promoting at every hold, until a state; or until the first hold with promote False."""
        for _ in range(limit):
            now = Operation.objects.get(pk=self.operation.pk)
            if now.state == until or (now.state in FINISHED):
                assert now.state == until, (now.state, now.finding)
                return now
            assert now.state != "held", now.finding
            if now.state == "waiting" and promote and now.waits_for["hold_key"]:
                verbs.promote_operation(operation_id=now.pk, reason="", actor=ACTOR)
            wake(operation_id=now.pk)
            advance(operation_id=now.pk, steps=STEPS, connect=lambda *_, **__: self.world, owner="test")
        raise AssertionError((now.state, now.waits_for))

    @property
    def new(self) -> str:
        """The new label."""
        return str(Operation.objects.get(pk=self.operation.pk).memory["new"])

    def side(self, slice_key: str, label: str) -> dict[str, int]:
        """Groups of a slice's revision, by role."""
        return {key[2]: count for key, count in self.world.counts().items() if key[:2] == (slice_key, label)}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SlicedWorld:
    monkeypatch.setattr(proof, "GUARDS_SETTLED", 0, raising=False)
    return SlicedWorld()


def at(state: dict[Key, int], slice_key: str, label: str) -> dict[str, int]:
    return {key[2]: count for key, count in state.items() if key[:2] == (slice_key, label) and count}


def test_one_slice_after_the_other(world: SlicedWorld, users: Cast) -> None:
    run = Run(world, users, slice_order="one-by-one", holds=["first-complete-row"])
    first = run.turn("waiting", promote=False)
    assert first.waits_for["hold_key"].startswith("slice-0-row-")
    assert run.side("0", run.new) == {"prefill": 1, "decode": 1}
    assert run.side("1", run.new) == {"prefill": 0, "decode": 0}, "made at 0, and held there"
    box = world.boxes[-1]
    assert {box.ceilings["1", run.new, role] for role in ROLES} == {0}
    run.turn("succeeded")

    new, old = run.new, run.old
    assert world.counts() == {(s, new, role): count for s in "01" for role, count in ROLES.items()}
    assert not is_holding(world.parameter())
    canary_done = next(
        i for i, state in enumerate(world.history) if at(state, "0", new) == ROLES and not at(state, "0", old)
    )
    started = next(i for i, state in enumerate(world.history) if at(state, "1", new))
    assert started > canary_done, "slice 1 begins when slice 0 has finished"
    assert all(at(state, "1", old) == ROLES for state in world.history[:started])
    for state in world.history:
        for slice_key in "01":
            for role, count in ROLES.items():
                total = sum(c for k, c in state.items() if k[0] == slice_key and k[2] == role)
                assert count <= total <= count + 1
    asked = [
        step.args["slices"] for step in run.operation.steps.filter(name="upgrades.hold").order_by("index")
    ]
    assert asked == [["0"], ["0"], ["1"], ["1"]], "each slice has its own holds"
    assert UpdateRecord.objects.get(operation=run.operation).outcome == "succeeded"
    services_made = {name for kind, _, name in world.objects if kind == "Service" and new in name}
    assert len(services_made) == 4


def test_all_slices_together(world: SlicedWorld, users: Cast) -> None:
    run = Run(world, users)
    run.turn("waiting", promote=False)
    for slice_key in "01":
        assert run.side(slice_key, run.new) == {"prefill": 1, "decode": 1}
    run.turn("succeeded")
    assert world.counts() == {(s, run.new, role): count for s in "01" for role, count in ROLES.items()}


@pytest.mark.parametrize("slice_order", ["one-by-one", "together"])
def test_back_from_the_first_hold(world: SlicedWorld, users: Cast, slice_order: str) -> None:
    before = world.counts()
    run = Run(world, users, slice_order=slice_order)
    run.turn("waiting", promote=False)
    verbs.abort_operation(operation_id=run.operation.pk, reason="test", actor=ACTOR)
    run.turn("aborted")
    assert {key: count for key, count in world.counts().items() if count} == before
    assert not is_holding(world.parameter())


def test_back_from_between_the_slices(world: SlicedWorld, users: Cast) -> None:
    """The canary slice has finished; both slices go back to what was recorded."""
    before = world.counts()
    run = Run(world, users, slice_order="one-by-one")
    for _ in range(200):
        now = run.operation.steps.filter(state="pending").order_by("index").first()
        assert now is not None
        if now.args.get("slices") == ["1"]:
            break
        state = Operation.objects.get(pk=run.operation.pk)
        if state.state == "waiting" and state.waits_for["hold_key"]:
            verbs.promote_operation(operation_id=state.pk, reason="", actor=ACTOR)
        wake(operation_id=state.pk)
        advance(operation_id=state.pk, steps=STEPS, connect=lambda *_, **__: world, owner="test")
    assert run.side("0", run.new) == ROLES and run.side("1", run.old) == ROLES
    verbs.abort_operation(operation_id=run.operation.pk, reason="test", actor=ACTOR)
    run.turn("aborted")
    assert {key: count for key, count in world.counts().items() if count} == before
    assert all(at(state, "1", run.new) == {} for state in world.history), "slice 1 never began"


def test_adopting_is_refused_for_several_slices(world: SlicedWorld, users: Cast) -> None:
    run = Run(world, users, slice_order="one-by-one")
    run.turn("waiting", promote=False)
    child = next(c for c in world.children() if c["metadata"]["name"].endswith(f"0-{run.old}-prefill"))
    child["spec"]["replicas"] = 1
    for _ in range(6):
        wake(operation_id=run.operation.pk)
        advance(operation_id=run.operation.pk, steps=STEPS, connect=lambda *_, **__: world, owner="test")
    held = Operation.objects.get(pk=run.operation.pk)
    assert (held.state, held.finding["code"]) == ("held", "hold-breached")
    verbs.adopt_operation(operation_id=held.pk, reason="", actor=ACTOR)
    advance(operation_id=held.pk, steps=STEPS, connect=lambda *_, **__: world, owner="test")
    assert Operation.objects.get(pk=held.pk).finding["code"] == "adopt-sliced"
