"""Scalers that outlive a revision: an HPA and Knative's PodAutoscaler on a role scaler, paused and given back; and what
is said of a PodAutoscaler that cannot be paused. Kinds and their sources: role_scalers.py, deploy/rig/path_crds.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.holds.scalers.orphans import ask_to_give_back
from controlplane.operations.models import Run
from deploy.rig import Rig, until, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import V2, Json, look_often, small_roles
from tests.cluster.role_scalers import external_roles, make_role_scaler, on_role, role_scalers_on
from tests.cluster.scalers import PAUSED, Scaled, as_before, hpa, lost, owner_of, rescales, scaled
from tests.cluster.test_faults import step_comes

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
KNATIVE_API = "autoscaling.internal.knative.dev/v1alpha1"
MIN, MAX = "autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/max-scale"
CLASS = "autoscaling.knative.dev/class"
PLURAL = {"HorizontalPodAutoscaler": "horizontalpodautoscalers", "PodAutoscaler": "podautoscalers"}


@pytest.fixture(scope="module", autouse=True)
def role_scalers(rig: Rig) -> Iterator[None]:
    """The cluster serves role scalers."""
    if rig.lws_has_slices:
        pytest.skip("this LeaderWorkerSet manager brings role scalers of its own, and sizes roles by them")
    with role_scalers_on(rig):
        yield


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


def an_hpa(namespace: str) -> Json:
    """An HPA with bounds around what stands."""
    return on_role("HorizontalPodAutoscaler", namespace, api="autoscaling/v2", minReplicas=1, maxReplicas=9)


def of_knative(namespace: str) -> Json:
    """A PodAutoscaler of the class that can drive a role scaler, with a maximum and no minimum."""
    made = on_role("PodAutoscaler", namespace, api=KNATIVE_API, protocolType="http1")
    made["metadata"]["annotations"] |= {CLASS: "hpa.autoscaling.knative.dev", MAX: "8"}
    return made


def on_external(
    lockstep: Lockstep,
    namespace: str,
    make_set: MakeSet,
    make: Callable[[str], Json],
    **options: Any,
) -> Scaled:
    """A set with a role that is sized from outside, a scaler on that role, and a started upgrade."""

    def made(_old: str) -> Json:
        make_role_scaler(lockstep.rig.client(), namespace)
        return make(namespace)

    return scaled(lockstep, namespace, make_set, made, roles=external_roles(), **options)


def asks_for(midway: Scaled) -> int:
    """What the role scaler asks for."""
    path = f"/apis/disaggregatedset.x-k8s.io/v1/namespaces/{midway.namespace}/disaggregatedsetrolescalers"
    return int(midway.client("admin").get(f"{path}/model-decode")["spec"]["replicas"])


def is_paused(body: Json) -> bool:
    """Whether it stands still, in the way of its kind."""
    if body["kind"] == "PodAutoscaler":
        annotations = body["metadata"]["annotations"]
        return (annotations.get(MIN), annotations.get(MAX)) == ("2", "2")
    behavior = body["spec"].get("behavior") or {}
    return all(behavior.get(way, {}).get("selectPolicy") == "Disabled" for way in ("scaleUp", "scaleDown"))


BOTH = pytest.mark.parametrize("make", [an_hpa, of_knative], ids=["hpa", "knative"])


@BOTH
def test_seen_paused_and_given_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, make: Callable[[str], Json]
) -> None:
    midway = on_external(lockstep, namespace, make_set, make)
    shown = lockstep.operator.get(f"/api/v1/plans/{midway.operation.subject_id}").json()
    said = {each["id"]: each["facts"] for each in shown["hazards"]}
    assert list(said["scaler-is-paused"]["scalers"]) == [f"{midway.scaler['kind']} busy"]
    assert "scaler-aims-at-revision" not in said, "a role scaler outlives the revision"
    midway.reached("waiting")
    assert is_paused(midway.now()) and asks_for(midway) == 2
    midway.ends("succeeded")
    assert midway.is_as_before(), midway.now()
    assert midway.counts() == {(midway.new, "prefill"): 2, (midway.new, "decode"): 2}
    name = f"{midway.scaler['kind']} busy"
    assert midway.result("pause_scalers")["paused"] == [name]
    assert midway.result("give_back_scalers") == {"given_back": [name], "gone": [], "findings": []}


@BOTH
def test_an_abort_gives_it_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, make: Callable[[str], Json]
) -> None:
    midway = on_external(lockstep, namespace, make_set, make)
    midway.reached("waiting")
    assert is_paused(midway.now())
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    assert midway.is_as_before(), midway.now()
    assert midway.counts() == {(midway.old, "prefill"): 2, (midway.old, "decode"): 2}


@BOTH
@pytest.mark.parametrize("abort", [False, True], ids=["goes-on", "aborts"])
def test_a_worker_is_lost_between_the_pause_and_the_database(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, make: Callable[[str], Json], abort: bool
) -> None:
    midway = on_external(lockstep, namespace, make_set, make, holds=[])
    step_comes(midway, "pause_scalers")
    lost(midway, after=1, plural=PLURAL[midway.scaler["kind"]])
    assert not midway.lockstep.state(midway.operation).memory.get("scalers") and is_paused(midway.now())
    if abort:
        midway.verb("abort", reason="test")
    midway.ends("aborted" if abort else "succeeded")
    assert midway.is_as_before(), midway.now()


@BOTH
def test_the_sweep_gives_back_what_was_left(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, make: Callable[[str], Json]
) -> None:
    """A pause that came when its operation had ended."""
    midway = on_external(lockstep, namespace, make_set, make)
    step_comes(midway, "write_roles")
    paused = midway.now()
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    assert midway.is_as_before()
    late = {"metadata": {"annotations": paused["metadata"]["annotations"]}}
    behavior = paused["spec"].get("behavior")
    midway.change({**late, "spec": {"behavior": behavior}} if behavior else late)
    assert is_paused(midway.now())
    assert ask_to_give_back() == 1
    lockstep.turn()
    assert midway.is_as_before(), midway.now()
    (run,) = Run.objects.filter(kind="holds.give_back_orphans")
    assert run.result["given_back"] == [f"{namespace}/{midway.scaler['kind']} busy"]


def test_the_hpa_controller_sizes_a_role_only_while_nothing_holds_it(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """The real controller: at a bound that what stands has passed it scales at once, through /scale."""
    midway = on_external(lockstep, namespace, make_set, an_hpa)
    client = midway.client("admin")
    midway.reached("waiting")
    until(
        "the controller to have looked",
        lambda: midway.now()["status"].get("currentReplicas") == 2,
        limit_s=60,
    )
    assert rescales(client, namespace) == [] and asks_for(midway) == 2
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    midway.change({"spec": {"minReplicas": 3}})
    until("the controller to scale", lambda: asks_for(midway) == 3, limit_s=60)


def test_what_knative_makes_of_a_pod_autoscaler_is_left_to_knative(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """Knative's controller is played: its class `hpa` makes an HPA from the PodAutoscaler, and whenever a bound changes
    it writes it anew with every annotation of the PodAutoscaler, our record included."""
    midway = on_external(lockstep, namespace, make_set, of_knative)
    client = midway.client("stranger")

    def knative(stored: Json | None = None) -> Json:
        source = midway.now()
        annotations = source["metadata"]["annotations"]
        least, most = int(annotations.get(MIN, "1")), int(annotations[MAX])
        made = hpa(namespace, child="", minReplicas=least, maxReplicas=most)
        made["spec"]["scaleTargetRef"] = source["spec"]["scaleTargetRef"]
        made["metadata"] |= {"annotations": annotations, "ownerReferences": [owner_of(source)]}
        if stored is None:
            return client.create(made)
        version = client.get(client.path(stored))["metadata"]["resourceVersion"]
        return client.replace({**made, "metadata": {**made["metadata"], "resourceVersion": version}})

    stored = knative()
    midway.reached("waiting")
    stored = knative(stored)
    assert PAUSED in stored["metadata"]["annotations"]
    assert (stored["spec"]["minReplicas"], stored["spec"]["maxReplicas"]) == (2, 2)
    midway.ends("succeeded")
    assert as_before(client.get(client.path(stored))) == as_before(stored), "left to Knative"
    assert midway.is_as_before(), midway.now()
    assert midway.result("give_back_scalers")["given_back"] == ["PodAutoscaler busy"]
    knative(stored)
    assert ask_to_give_back() == 1
    lockstep.turn()
    assert Run.objects.get(kind="holds.give_back_orphans").result["given_back"] == []


def on_revision(namespace: str, old: str) -> Json:
    """A PodAutoscaler on a LeaderWorkerSet, whose number an upgrade changes."""
    made = of_knative(namespace)
    child = f"model-{old}-prefill"
    made["spec"]["scaleTargetRef"] = {
        "apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet", "name": child
    }  # fmt: skip
    return made


def test_a_pod_autoscaler_on_a_revision_blocks_the_plan(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    old = make_set(roles=small_roles())
    client = lockstep.rig.client("stranger")
    stored = client.create(on_revision(namespace, old))
    draft: Json = {"roles": {role: {"image": V2} for role in ("prefill", "decode")}}
    plan = lockstep.draft(lockstep.observe(namespace, "model"), draft)
    assert plan["state"] == "blocked", plan["state"]
    (said,) = [each["sentence"] for each in plan["hazards"] if each["id"] == "scaler-on-role"]
    assert "PodAutoscaler busy (Knative knows bounds and no pause" in said
    assert client.get(client.path(stored)) == stored, "looked at, not touched"


def test_a_pod_autoscaler_that_comes_after_the_plan_stops_the_upgrade_before_it_writes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    old = make_set(roles=small_roles())
    operation = lockstep.upgrade(namespace, "model", image=V2)
    midway = Scaled(lockstep, namespace, operation, old)
    client = midway.client("stranger")
    midway.scaler = client.create(on_revision(namespace, old))
    before = midway.live_roles()
    finding = midway.found("scaler-not-pausable")
    assert "PodAutoscaler busy" in finding["sentence"] and "Remove it" in finding["next_action"]
    assert midway.live_roles() == before and midway.is_as_before()
    client.delete(client.path(midway.scaler))
    midway.verb("retry", reason="it is gone")
    midway.ends("succeeded")
