"""A set with a scaler on it is upgraded: nothing scales meanwhile, and the scaler is as before afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.fleet.connections import connect_cluster
from controlplane.holds.scalers.orphans import ask_to_give_back
from controlplane.operations.clock import database_now
from controlplane.operations.engine import advance
from controlplane.operations.models import Operation, Run
from deploy.rig import Rig, path_crds, until
from deploy.rig.build import cache_root
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import V2, Json, Midway, look_often, small_roles
from tests.cluster.scalers import PAUSED, as_before, hpa, rescales
from tests.cluster.test_faults import step_comes
from workers.steps import STEPS

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


class Scaled(Midway):
    """A started upgrade of a set with one scaler on it."""

    scaler: Json
    before: Json  # type: ignore[assignment]

    def now(self) -> Json:
        """The scaler as it stands."""
        client = self.client("admin")
        return client.get(client.path(self.scaler))

    def is_as_before(self) -> bool:
        """Whether everything that people write is what it was, to the byte."""
        return json.dumps(as_before(self.now()), sort_keys=True) == json.dumps(
            as_before(self.scaler), sort_keys=True
        )

    def change(self, patch: Json) -> None:
        """Somebody edits the scaler."""
        client = self.client("stranger")
        client.patch(client.path(self.scaler), patch)

    def result(self, step: str) -> Json:
        """What a step has done."""
        found: Json = self.operation.steps.get(name=f"holds.{step}", state="done").result
        return found


def scaled(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, make: Callable[[str], Json], **options: Any
) -> Scaled:
    """A set, its scaler (made with the old label), and a started upgrade."""
    old = make_set(roles=small_roles())
    client = lockstep.rig.client("stranger")
    stored = client.create(make(old))
    operation = lockstep.upgrade(namespace, "model", image=V2, **options)
    found = Scaled(lockstep, namespace, operation, old)
    found.scaler = stored
    return found


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


class PowerCut(BaseException):
    """Ends the claim where it is."""


def lost(midway: Scaled, *, after: int) -> None:
    """A worker is lost after so many real patches of scalers."""
    seen = 0

    def hook(phase: str, verb: str, resource: Any, name: str) -> None:
        nonlocal seen
        if (phase, verb, resource.plural) == ("after", "patch", "horizontalpodautoscalers"):
            seen += 1
            if seen == after:
                raise PowerCut

    with pytest.raises(PowerCut):
        advance(
            operation_id=midway.operation.pk,
            steps=STEPS,
            connect=lambda cluster, on_call=None: connect_cluster(cluster, on_call=hook),  # type: ignore[arg-type]
            owner="lost",
        )
    Operation.objects.filter(pk=midway.operation.pk).update(lease_until=database_now())


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


@pytest.fixture(scope="module")
def keda(rig: Rig) -> Iterator[None]:
    """The cluster knows ScaledObjects."""
    if not path_crds.there(cache_root()):
        pytest.skip(
            "the kinds of the request path have not been fetched (python -m deploy.rig build path-crds)"
        )
    found = path_crds.documents(path_crds.folder(cache_root()))
    (kind,) = [each for each in found if each["metadata"]["name"] == "scaledobjects.keda.sh"]
    rig.apply(kind)
    client = rig.client()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scaledobjects.keda.sh"
    until(
        "ScaledObjects to be served",
        lambda: any(
            each["type"] == "Established" and each["status"] == "True"
            for each in client.get(path).get("status", {}).get("conditions") or []
        ),
    )
    yield
    client.delete(path)


@pytest.mark.usefixtures("keda")
@pytest.mark.parametrize("abort", [False, True], ids=["goes-on", "aborts"])
def test_a_scaled_object_of_keda(lockstep: Lockstep, namespace: str, make_set: MakeSet, abort: bool) -> None:
    def scaled_object(old: str) -> Json:
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {
                "name": "busy",
                "namespace": namespace,
                "annotations": {"autoscaling.keda.sh/paused-replicas": "2", "team": "serving"},
            },
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "leaderworkerset.x-k8s.io/v1",
                    "kind": "LeaderWorkerSet",
                    "name": f"model-{old}-prefill",
                },
                "triggers": [{"type": "cpu", "metadata": {"value": "50"}}],
            },
        }

    midway = scaled(lockstep, namespace, make_set, scaled_object, holds=[])
    client = midway.client("admin")
    owner = {key: midway.scaler[key] for key in ("apiVersion", "kind")} | {
        "name": "busy",
        "uid": midway.scaler["metadata"]["uid"],
        "controller": True,
    }
    made = hpa(namespace, child=f"model-{midway.old}-prefill", name="keda-hpa-busy", minReplicas=1)
    made["metadata"]["ownerReferences"] = [owner]
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
    condition = {"type": "Paused", "status": "True"}
    client.patch(f"{client.path(midway.scaler)}/status", {"status": {"conditions": [condition]}})
    step_comes(midway, "write_roles")
    if abort:
        midway.verb("abort", reason="test")
    midway.ends("aborted" if abort else "succeeded")
    assert midway.is_as_before(), midway.now()
