"""A set with a scaler on it is upgraded: nothing scales meanwhile, and the scaler is as before afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.holds.scalers.orphans import ask_to_give_back
from controlplane.operations.models import Run
from deploy.rig import Rig, until
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import Json, look_often
from tests.cluster.scalers import (
    PAUSED,
    Scaled,
    as_before,
    hpa,
    keda_says,
    lost,
    owner_of,
    rescales,
    scaled,
    scaled_object,
)
from tests.cluster.test_faults import step_comes

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
DISABLED = ["Disabled", "Disabled"]
STOPPED = {way: {"selectPolicy": "Disabled"} for way in ("scaleUp", "scaleDown")}


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


def selects(body: Json) -> list[str]:
    return [
        (body["spec"].get("behavior") or {}).get(way, {}).get("selectPolicy")
        for way in ("scaleUp", "scaleDown")
    ]


def of_prefill(namespace: str, **spec: Any) -> Callable[[str], Json]:
    """A minimum that the upgrade goes below."""
    return lambda old: hpa(namespace, child=f"model-{old}-prefill", minReplicas=2, **spec)


def waits_at_row(midway: Scaled, groups: int) -> None:
    """Turn until the operation stands at a hold with so many old prefill groups."""

    def there() -> bool:
        now = midway.lockstep.state(midway.operation)
        at = midway.counts().get((midway.old, "prefill"), 0)
        if now.state == "waiting" and at > groups:
            midway.lockstep.let_go(now)
        return now.state == "waiting" and at == groups

    midway.lockstep.until(f"{groups} old prefill groups", there, limit_s=60)


def test_nothing_scales_at_a_hold_and_the_scaler_is_given_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """At 1 group a minimum of 2 has the controller scale at once, without metrics and whatever the policy says. To
    show that, another scaler is made beside the paused one: disabled in both directions, its minimum left alone."""
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace), holds=["every-row"])
    step_comes(midway, "write_roles")
    paused = midway.now()
    assert selects(paused) == DISABLED and paused["spec"]["minReplicas"] == 1
    assert midway.counts() == {(midway.old, "prefill"): 2, (midway.old, "decode"): 1}
    waits_at_row(midway, 1)
    standing, client = midway.counts(), midway.client("admin")
    beside = hpa(
        namespace, child=f"model-{midway.old}-prefill", name="beside", minReplicas=2, behavior=STOPPED
    )
    client.create(beside)
    until(
        "the controller to have looked",
        lambda: midway.now()["status"].get("currentReplicas") == 1,
        limit_s=60,
    )
    until("the other one to try", lambda: rescales(client, namespace, "beside"), limit_s=60)
    assert all("lockstep hold U-" in said for said in rescales(client, namespace, "beside"))
    assert rescales(client, namespace) == [] and midway.counts() == standing
    client.delete(client.path(beside))

    midway.ends("succeeded")
    assert midway.is_as_before(), midway.now()
    assert rescales(client, namespace) == []
    assert midway.result("pause_scalers")["paused"] == ["HorizontalPodAutoscaler busy"]
    given = midway.result("give_back_scalers")
    assert given == {"given_back": ["HorizontalPodAutoscaler busy"], "gone": [], "findings": []}


BEHAVIOR = {"scaleDown": {"selectPolicy": "Min", "stabilizationWindowSeconds": 60}}


@pytest.mark.parametrize("behavior", [None, BEHAVIOR], ids=["without-behavior", "with-behavior"])
def test_an_abort_gives_it_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, behavior: Json | None
) -> None:
    spec = {"behavior": behavior} if behavior else {}
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace, **spec))
    midway.reached("waiting")
    assert selects(midway.now()) == DISABLED
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    assert midway.is_as_before(), midway.now()
    assert midway.counts() == {(midway.old, "prefill"): 2, (midway.old, "decode"): 1}


def test_what_somebody_changed_meanwhile_stays(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace), holds=[])
    step_comes(midway, "write_roles")
    midway.change({"spec": {"maxReplicas": 5, "minReplicas": 3}})
    midway.ends("succeeded")
    stands = midway.now()
    wanted = as_before(midway.scaler)
    wanted["spec"] |= {"maxReplicas": 5, "minReplicas": 3}
    assert as_before(stands) == wanted, "the rest is as before"
    (finding,) = midway.result("give_back_scalers")["findings"]
    assert [each["path"] for each in finding["fields"]] == ["spec.minReplicas", "spec.maxReplicas"]
    assert finding["fields"][0] == {"path": "spec.minReplicas", "original": 2, "now": 3}


def test_the_set_is_deleted_under_it(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace))
    midway.reached("waiting")
    midway.client("admin").delete(midway.set_path)
    midway.found("set-gone")
    midway.verb("abort", reason="test")
    midway.ends("failed")
    assert midway.is_as_before(), midway.now()


# --- lost workers, in this process: nothing is written down, and the lease runs out


@pytest.mark.parametrize("abort", [False, True], ids=["goes-on", "aborts"])
@pytest.mark.parametrize("after", [1, 2])
def test_a_worker_is_lost_between_the_pause_and_the_database(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, after: int, abort: bool
) -> None:
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace), holds=[])
    other = midway.client("stranger").create(
        hpa(namespace, child=f"model-{midway.old}-decode", name="other", minReplicas=1)
    )
    step_comes(midway, "pause_scalers")
    lost(midway, after=after)
    assert not midway.lockstep.state(midway.operation).memory.get("scalers")
    assert PAUSED in midway.now()["metadata"]["annotations"]
    if abort:
        midway.verb("abort", reason="test")
    midway.ends("aborted" if abort else "succeeded")
    client = midway.client("admin")
    assert midway.is_as_before() and as_before(client.get(client.path(other))) == as_before(other)


def test_a_worker_is_lost_between_giving_back_and_the_database(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace), holds=[])
    step_comes(midway, "write_roles")
    waits_for = midway.operation.steps.get(name="holds.give_back_scalers")

    def next_is_it() -> bool:
        now = midway.lockstep.state(midway.operation)
        if now.state == "waiting":
            midway.lockstep.let_go(now)
        pending = midway.operation.steps.filter(state="pending").order_by("index").first()
        return pending is not None and pending.pk == waits_for.pk

    midway.lockstep.until("the step to come", next_is_it, limit_s=60)
    lost(midway, after=1)
    assert midway.is_as_before()
    midway.change({"spec": {"maxReplicas": 7}})
    midway.ends("succeeded")
    assert midway.now()["spec"]["maxReplicas"] == 7, "given back once, and not again over somebody's change"


def test_the_sweep_gives_back_what_was_left(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    """A pause that came when its operation had ended: its write was on the way for all that time."""
    midway = scaled(lockstep, namespace, make_set, of_prefill(namespace))
    step_comes(midway, "write_roles")
    paused = midway.now()
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    assert midway.is_as_before()
    midway.change(
        {"metadata": {"annotations": paused["metadata"]["annotations"]}, "spec": {"minReplicas": 1}}
    )
    midway.change({"spec": {"behavior": paused["spec"]["behavior"]}})
    assert ask_to_give_back() == 1
    lockstep.turn()
    assert midway.is_as_before(), midway.now()
    (run,) = Run.objects.filter(kind="holds.give_back_orphans")
    assert run.result["given_back"] == [f"{namespace}/HorizontalPodAutoscaler busy"]
    assert AuditEvent.objects.filter(action="scaler.give_back").count() == 1


# --- KEDA: its kind as its project ships it, its operator played by the test


@pytest.mark.parametrize("abort", [False, True], ids=["goes-on", "aborts"])
def test_a_scaled_object_of_keda(lockstep: Lockstep, namespace: str, make_set: MakeSet, abort: bool) -> None:
    def busy(old: str) -> Json:
        asked = {"autoscaling.keda.sh/paused-replicas": "2", "team": "serving"}
        return scaled_object(namespace, child=f"model-{old}-prefill", annotations=asked)

    midway = scaled(lockstep, namespace, make_set, busy, holds=[])
    client = midway.client("admin")
    made = hpa(namespace, child=f"model-{midway.old}-prefill", name="keda-hpa-busy", minReplicas=1)
    made["metadata"]["ownerReferences"] = [owner_of(midway.scaler)]
    stored = client.create(made)
    step_comes(midway, "pause_scalers")

    def waits_for_keda() -> bool:
        lockstep_says = midway.lockstep.state(midway.operation).waits_for.get("what", "")
        return "KEDA to take up the pause of ScaledObject busy" in lockstep_says

    midway.lockstep.until("the pause to be written", waits_for_keda)
    annotations = midway.now()["metadata"]["annotations"]
    assert annotations["autoscaling.keda.sh/paused"] == "true"
    assert "autoscaling.keda.sh/paused-replicas" not in annotations
    assert as_before(client.get(client.path(stored))) == as_before(stored), "KEDA's own HPA is left to KEDA"
    assert midway.counts() == {(midway.old, "prefill"): 2, (midway.old, "decode"): 1}
    client.delete(client.path(stored))
    keda_says(client, midway.scaler, paused=True)
    step_comes(midway, "write_roles")
    if abort:
        midway.verb("abort", reason="test")
    midway.ends("aborted" if abort else "succeeded")
    assert midway.is_as_before(), midway.now()
