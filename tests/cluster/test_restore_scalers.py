"""A restore with scalers on the set: paused before anything is written, given back as they stood whatever becomes of
it, and last of all what was recorded of them is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.operations.engine import wake
from controlplane.operations.models import Operation
from controlplane.recovery.models import Combination, Restore
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import V2, Midway, small_roles
from tests.cluster.restoring import (
    Losses,
    asked,
    capture,
    held,
    look_often,
    parts,
    restore,
    rolled_out,
    turned,
    turned_with_losses,
)
from tests.cluster.scalers import (
    PAUSED,
    as_before,
    history,
    hpa,
    keda_says,
    pauses_of,
    rescales,
    scaled_object,
)

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
KEDA_PAUSED = "autoscaling.keda.sh/paused"
KEDA_NUMBER = "autoscaling.keda.sh/paused-replicas"


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


@dataclass
class Scalers:
    """An HPA on prefill and a ScaledObject on decode, as they were recorded and as somebody left them since."""

    lockstep: Lockstep
    namespace: str
    recorded: list[Json]
    left: list[Json]

    def now(self) -> list[Json]:
        """As they stand."""
        client = self.lockstep.rig.client("admin")
        return [client.get(client.path(each)) for each in self.recorded]

    def stand_as(self, wanted: list[Json]) -> bool:
        """Whether everything that people write is what it was there."""
        return [as_before(each) for each in self.now()] == [as_before(each) for each in wanted]

    def are_paused(self) -> bool:
        """Whether both stand still, each in its way."""
        one, other = self.now()
        behavior, annotations = one["spec"].get("behavior") or {}, other["metadata"]["annotations"]
        stopped = [behavior.get(way, {}).get("selectPolicy") for way in ("scaleUp", "scaleDown")]
        by_keda = (annotations.get(KEDA_PAUSED), annotations.get(KEDA_NUMBER)) == ("true", None)
        return stopped == ["Disabled", "Disabled"] and by_keda

    def pauses(self) -> list[list[bool]]:
        """Whether each was paused, at each change of that since `left`."""
        client = self.lockstep.rig.client("admin")
        return [pauses_of(history(client, each)) for each in self.left]


def follow(lockstep: Lockstep, namespace: str, name: str, label: str) -> list[Json]:
    """Scalers on the set's revision."""
    client = lockstep.rig.client("stranger")
    busy = hpa(namespace, child=f"{name}-{label}-prefill", minReplicas=1)
    cron = scaled_object(namespace, child=f"{name}-{label}-decode", name="cron", annotations={"team": "a"})
    return [client.create(busy), client.create(cron)]


def point(lockstep: Lockstep, scalers: list[Json], name: str, label: str) -> list[Json]:
    """Somebody lets them follow another revision, with other settings: KEDA is to hold its number there."""
    client = lockstep.rig.client("stranger")
    busy, cron = (client.path(each) for each in scalers)
    aims = [{"scaleTargetRef": {"name": f"{name}-{label}-{role}"}} for role in ("prefill", "decode")]
    client.patch(busy, {"spec": {**aims[0], "minReplicas": 2, "maxReplicas": 5}})
    client.patch(
        cron,
        {"spec": {**aims[1], "maxReplicaCount": 4}, "metadata": {"annotations": {KEDA_NUMBER: "1"}}},
    )
    keda_says(client, scalers[1], paused=True)
    return [client.get(busy), client.get(cron)]


@dataclass
class Bad:
    """A set that somebody has rolled out to a bad revision, with its scalers; the good one is recorded."""

    good: str
    found: Combination
    scalers: Scalers


@pytest.fixture
def bad(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Bad:
    good = make_set(roles=small_roles())
    recorded = follow(lockstep, namespace, "model", good)
    found = capture(lockstep, namespace, "model")
    label = rolled_out(lockstep.rig, namespace, "model", small_roles(V2))
    left = point(lockstep, recorded, "model", label)
    return Bad(good, found, Scalers(lockstep, namespace, recorded, left))


def comes_to(lockstep: Lockstep, restored: Restore, name: str) -> Operation:
    """Turn until a step is the next one."""
    operation = Operation.objects.get(pk=restored.operation_id)

    def there() -> bool:
        now = lockstep.state(operation)
        assert now.state != "held", now.finding
        wake(operation_id=now.pk)
        pending = now.steps.filter(state="pending").order_by("index").first()
        return pending is not None and pending.name == name

    lockstep.until(name, there, limit_s=60)
    return operation


def test_paused_first_given_back_and_put_as_recorded(lockstep: Lockstep, namespace: str, bad: Bad) -> None:
    client, scalers = lockstep.rig.client("stranger"), bad.scalers
    plan = asked(lockstep, f"combinations/{bad.found.pk}/plan").result
    assert [part["name"] for part in plan["parts"]] == ["workload", "scalers"]
    keda_says(client, scalers.left[1], paused=False)
    before = lockstep.counts(namespace, "model")
    restored = restore(lockstep, bad.found)
    operation = Operation.objects.get(pk=restored.operation_id)

    def waits_for_keda() -> bool:
        said = lockstep.state(operation).waits_for.get("what", "")
        return "KEDA to take up the pause of ScaledObject cron" in said

    lockstep.until("the pause to be written", waits_for_keda)
    assert scalers.are_paused() and lockstep.counts(namespace, "model") == before, "nothing else was written"
    keda_says(client, scalers.left[1], paused=True)
    comes_to(lockstep, restored, "recovery.release")
    assert scalers.are_paused(), "until the hold is let go"
    turned(lockstep, restored)
    assert workloads.wait_settled(client, namespace, "model") == bad.good
    assert scalers.stand_as(scalers.recorded), scalers.now()
    assert scalers.pauses() == [[False, True, False]] * 2
    assert parts(lockstep, restored) == [("workload", True), ("scalers", True)]
    for was, stages in zip(scalers.left, map(history_of(lockstep), scalers.left), strict=True):
        given = next(n for n, body in enumerate(stages) if n and not paused(body) and paused(stages[n - 1]))
        assert as_before(stages[given]) == as_before(was), "given back as it stood; then what was recorded"
    assert rescales(client, namespace) == []


def history_of(lockstep: Lockstep) -> Callable[[Json], list[Json]]:
    client = lockstep.rig.client("admin")
    return lambda scaler: history(client, scaler)


def paused(body: Json) -> bool:
    return PAUSED in body["metadata"].get("annotations", {})


@pytest.mark.parametrize("way", ["stopped", "failed"])
def test_while_it_is_held_they_stay_paused_and_a_retry_goes_on(
    lockstep: Lockstep, namespace: str, bad: Bad, way: str
) -> None:
    scalers, restored = bad.scalers, restore(lockstep, bad.found)
    operation = comes_to(lockstep, restored, "recovery.reach_whole")
    if way == "stopped":
        assert lockstep.verb(operation, "stop", {"reason": "wait a moment"}).status_code == 200
        held(lockstep, restored, "stopped")
    else:
        path = workloads.set_path(namespace, "model")
        roles = small_roles("registry.example/engine:v9")
        lockstep.rig.client("stranger").patch(path, {"spec": {"roles": roles}})
        held(lockstep, restored, "foreign-write")
    assert scalers.are_paused()
    verb = "resume" if way == "stopped" else "retry"
    assert lockstep.verb(operation, verb, {"reason": "go on"}).status_code == 200
    turned(lockstep, restored)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == bad.good
    assert scalers.stand_as(scalers.recorded), scalers.now()
    assert scalers.pauses() == [[False, True, False]] * 2


@pytest.mark.parametrize("held_first", [False, True], ids=["running", "held"])
def test_an_abort_gives_them_back_as_they_stood_before_the_restore(
    lockstep: Lockstep, namespace: str, bad: Bad, held_first: bool
) -> None:
    scalers, restored = bad.scalers, restore(lockstep, bad.found)
    operation = comes_to(lockstep, restored, "recovery.reach_whole")
    if held_first:
        assert lockstep.verb(operation, "stop", {"reason": "wait a moment"}).status_code == 200
        held(lockstep, restored, "stopped")
    assert scalers.are_paused()
    assert lockstep.verb(operation, "abort", {"reason": "test"}).status_code == 200
    turned(lockstep, restored, "aborted")
    assert scalers.stand_as(scalers.left), scalers.now()
    assert parts(lockstep, restored) == [("workload", False), ("scalers", False)]


def test_those_that_an_upgrade_has_paused_are_taken_over(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    old = make_set(roles=small_roles())
    recorded = follow(lockstep, namespace, "model", old)
    found = capture(lockstep, namespace, "model")
    client = lockstep.rig.client("stranger")
    keda_says(client, recorded[1], paused=True)
    left = [client.get(client.path(each)) for each in recorded]
    scalers = Scalers(lockstep, namespace, recorded, left)
    operation = lockstep.upgrade(namespace, "model", image=V2)
    midway = Midway(lockstep, namespace, operation, old)
    midway.reached("waiting")
    assert scalers.are_paused()
    restored = restore(lockstep, found)
    turned(lockstep, restored)
    assert midway.counts() == midway.before()
    assert scalers.stand_as(recorded), scalers.now()
    assert scalers.pauses() == [[False, True, False]] * 2, (
        "paused all the way, for one and then for the other"
    )


def test_a_worker_lost_after_every_single_write(lockstep: Lockstep, namespace: str, bad: Bad) -> None:
    losses = Losses()
    turned_with_losses(lockstep, restore(lockstep, bad.found), losses)
    assert {"holds.pause_scalers", "holds.give_back_scalers", "recovery.put_scalers"} <= losses.steps
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == bad.good
    assert bad.scalers.stand_as(bad.scalers.recorded), bad.scalers.now()
    assert bad.scalers.pauses() == [[False, True, False]] * 2


def test_weights_come_back_before_the_settings_of_scalers(
    lockstep: Lockstep, rig: Rig, namespace: str
) -> None:
    client = rig.client("stranger")
    with ServedPath(rig, namespace) as served:
        good = served.serve("chat", engine_pair(2, 1))
        recorded = follow(lockstep, namespace, "chat", good)
        found = capture(lockstep, namespace, "chat")
        label = rolled_out(rig, namespace, "chat", engine_pair(2, 1, env={"EXTRA": "changed"}))
        rig.apply(served.route("chat", {"chat": 7}))
        scalers = Scalers(lockstep, namespace, recorded, point(lockstep, recorded, "chat", label))
        restored = restore(lockstep, found, confirm="chat")
        turned(lockstep, restored, limit_s=150)
        assert parts(lockstep, restored) == [("workload", True), ("weights", True), ("scalers", True)]
        assert scalers.stand_as(recorded), scalers.now()
        route = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes/chat"
        weighed = int(client.get(route)["metadata"]["resourceVersion"])
        for stages in map(history_of(lockstep), scalers.left):
            put = next(body for body in stages if as_before(body) == as_before(stages[-1]))
            assert int(put["metadata"]["resourceVersion"]) > weighed, "scalers last"
