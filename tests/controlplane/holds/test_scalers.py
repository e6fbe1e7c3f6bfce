"""The two steps on a cluster in memory: every way a pause may end, and what others do in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.holds.scalers.mark import PAUSED, mark_of
from controlplane.holds.scalers.pausing import TAKEN_UP_WITHIN
from controlplane.holds.scalers.steps import (
    PAUSE,
    fence_installation,
    give_back_scalers,
    pause_scalers,
)
from controlplane.kube.errors import Conflict
from controlplane.operations.contract import Hold, Wait
from controlplane.operations.installation import this_installation
from controlplane.operations.models import Operation
from policy.rollout.scalers import HPA, KEDA_PAUSED, KEDA_PAUSED_REPLICAS, SCALED_OBJECT
from tests.conftest import Cast
from tests.controlplane.fleet.world import UID
from tests.controlplane.holds.scaler_world import (
    SET,
    ScalerWorld,
    context_of,
    hpa,
    pod_autoscaler,
    scaled_object,
)
from tests.controlplane.holds.scaling import (
    disabled,
    gives_back,
    memory,
    pauses,
    store,
    superseded,  # noqa: F401
    without_versions,
)
from tests.controlplane.operations.toy import make_operation

pytestmark = pytest.mark.django_db
Json = dict[str, Any]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"behavior": {"scaleDown": {"selectPolicy": "Min"}}},
        {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 60, "selectPolicy": "Disabled"}}},
        {"low": 3, "high": 1},
    ],
)
def test_an_hpa_is_paused_and_given_back_as_it_was(operation: Operation, spec: Json) -> None:
    world = ScalerWorld(hpa(**spec))
    before = world.at(HPA)
    assert pauses(operation, world).result == {
        "paused": ["HorizontalPodAutoscaler busy"],
        "standing_still": [],
    }
    paused = world.at(HPA)
    assert disabled(paused) and paused["spec"]["minReplicas"] == 1 and paused["spec"]["maxReplicas"] >= 2
    assert paused["spec"]["metrics"] == before["spec"]["metrics"]
    assert gives_back(operation, world).result == {
        "given_back": ["HorizontalPodAutoscaler busy"],
        "gone": [],
        "findings": [],
    }
    assert without_versions(world.at(HPA)) == without_versions(before)
    assert operation.memory["scalers"] == {}


def test_both_steps_done_over_write_nothing(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    pauses(operation, world)
    assert world.writes == [(HPA, "busy")]
    gives_back(operation, world)
    gives_back(operation, world)
    assert world.writes == [(HPA, "busy")] * 2


def test_the_record_on_the_object_says_everything(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = world.at(HPA)
    pauses(operation, world)
    mark = mark_of(world.at(HPA))
    assert mark is not None
    assert (mark.operation, mark.fence) == (f"U-{operation.pk}", 7)
    assert mark.installation == str(this_installation().pk) and mark.set == {**SET, "uid": UID}
    assert mark.original == {"spec": {"behavior": None, "minReplicas": 2}}
    assert operation.memory["scalers"]["uid-busy"] == {"kind": HPA, "name": "busy", **mark.as_json()}
    line = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])["to-give-back"]
    patch = json.loads(line.split("-p '")[1].removesuffix("'"))
    world.edit(HPA, patch)
    assert world.at(HPA)["spec"] == before["spec"] and PAUSED not in json.dumps(world.at(HPA))


def test_a_scaler_that_stands_still_already_is_not_touched(operation: Operation) -> None:
    stop = {way: {"selectPolicy": "Disabled"} for way in ("scaleUp", "scaleDown")}
    world = ScalerWorld(hpa(low=1, behavior=stop), hpa("elsewhere", target="another-set"))
    assert pauses(operation, world).result == {
        "paused": [],
        "standing_still": ["HorizontalPodAutoscaler busy"],
    }
    assert not world.writes and gives_back(operation, world).result["given_back"] == []


def test_several_scalers_each_in_its_way(operation: Operation) -> None:
    keda = scaled_object("cron")
    keda["status"] = {"conditions": [{"type": "Paused", "status": "True"}]}
    role = pod_autoscaler("kpa", target={"kind": "DisaggregatedSet", "name": "chat"})
    world = ScalerWorld(hpa(), keda)
    before = {key: without_versions(body) for key, body in world.objects.items()}
    pauses(operation, world)
    assert world.at(SCALED_OBJECT, "cron")["metadata"]["annotations"][KEDA_PAUSED] == "true"
    gives_back(operation, world)
    assert {key: without_versions(body) for key, body in world.objects.items()} == before
    world.put(role)
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "scaler-not-pausable" and "kpa" in said.sentence


# --- KEDA says that it has taken the pause up


def test_keda_is_waited_for_until_its_own_hpa_is_gone(operation: Operation) -> None:
    made = hpa("keda-hpa-busy")
    made["metadata"]["ownerReferences"] = [
        {"kind": SCALED_OBJECT, "name": "busy", "uid": "uid-busy", "controller": True}
    ]
    world = ScalerWorld(scaled_object(annotations={KEDA_PAUSED_REPLICAS: "3"}), made)
    before = without_versions(world.at(SCALED_OBJECT))
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Wait) and "KEDA" in said.what
    store(operation, said)
    assert world.writes == [(SCALED_OBJECT, "busy")], "its HPA is left to KEDA"
    annotations = world.at(SCALED_OBJECT)["metadata"]["annotations"]
    assert annotations[KEDA_PAUSED] == "true" and KEDA_PAUSED_REPLICAS not in annotations
    world.edit(SCALED_OBJECT, {"status": {"conditions": [{"type": "Paused", "status": "True"}]}}, who="keda")
    assert isinstance(pause_scalers(context_of(operation, world)), Wait)
    late = pause_scalers(context_of(operation, world, waited=TAKEN_UP_WITHIN + 1))
    assert isinstance(late, Hold) and late.code == "scaler-not-paused"
    world.remove(HPA, "keda-hpa-busy")
    pauses(operation, world)
    assert len(world.writes) == 1
    gives_back(operation, world)
    stands = without_versions(world.at(SCALED_OBJECT))
    stands.pop("status")
    assert stands == before


# --- what stops it


def test_what_cannot_be_seen_or_paused_stops_the_operation(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    world.unread = {"scaledobjects"}
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and (said.code, "scaledobjects" in said.sentence) == (
        "scalers-unread",
        True,
    )
    world.unread = set()
    world.refused = {"busy"}
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "scaler-not-paused" and "webhook denied" in said.sentence
    world.refused = set()
    world.edit(HPA, {"metadata": {"ownerReferences": [{"kind": "Boss", "name": "b", "controller": True}]}})
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "scaler-not-pausable" and "Boss b" in said.sentence
    world.remove("DisaggregatedSet", "chat")
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "set-gone"
    assert not world.writes


@pytest.mark.parametrize("text", ["nonsense", "{}", "[]", '{"operation": 1}', "null"])
def test_an_annotation_that_is_no_record_is_for_a_person(operation: Operation, text: str) -> None:
    world = ScalerWorld(hpa())
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: text}}})
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "pause-unreadable"


def test_a_scaler_that_a_running_operation_has_paused_is_not_taken(operation: Operation, users: Cast) -> None:
    other = make_operation(users.operator, cluster=operation.cluster, targets=["another"], memory=memory())
    world = ScalerWorld(hpa())
    pauses(other, world)
    said = pause_scalers(context_of(operation, world))
    assert isinstance(said, Hold) and said.code == "foreign-pause" and f"U-{other.pk}" in said.sentence


def test_without_the_lease_nothing_is_written(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    assert fence_installation(context_of(operation, world)) is None
    lease = world.objects["Lease", "lockstep", "lockstep-installation"]
    lease["spec"]["holderIdentity"] = "somebody-else"
    found = fence_installation(context_of(operation, world))
    assert found is not None and found.code == "foreign-installation"


# --- lost workers


def test_a_worker_lost_between_the_write_and_the_database(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("other"))
    before = {key: without_versions(body) for key, body in world.objects.items()}
    pause_scalers(context_of(operation, world))  # what it remembers is lost
    pauses(operation, world)
    assert sorted(world.writes) == [(HPA, "busy"), (HPA, "other")]
    assert set(operation.memory["scalers"]) == {"uid-busy", "uid-other"}
    gives_back(operation, world)
    assert {key: without_versions(body) for key, body in world.objects.items()} == before


def test_a_worker_lost_between_two_scalers(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("other"))

    def moves() -> None:
        world.before_write = lambda: world.edit(HPA, {"metadata": {"labels": {"x": "y"}}}, "other")

    world.before_write = moves
    with pytest.raises(Conflict):
        pause_scalers(context_of(operation, world))
    assert world.writes == [(HPA, "busy")]
    pauses(operation, world)
    gives_back(operation, world)
    assert world.at(HPA, "other")["metadata"]["labels"] == {"x": "y"}
    assert PAUSED not in json.dumps(list(world.objects.values()))


def test_an_abort_before_the_database_knows_gives_back_all_the_same(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pause_scalers(context_of(operation, world))
    assert gives_back(operation, world).result["given_back"] == ["HorizontalPodAutoscaler busy"]
    assert without_versions(world.at(HPA)) == before


def test_a_pause_that_comes_after_an_abort_is_taken_back_at_once(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    Operation.objects.filter(pk=operation.pk).update(phase="aborting")
    pause_scalers(context_of(operation, world, still_ours=False))
    assert without_versions(world.at(HPA)) == before and len(world.writes) == 2


def test_a_pause_that_comes_when_another_worker_goes_on_stays(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pause_scalers(context_of(operation, world, still_ours=False))
    assert disabled(world.at(HPA))


def test_a_pause_in_flight_through_an_abort_fails(operation: Operation) -> None:
    """Its look was before, its write comes after everything was given back."""
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    operation.steps.filter(name=PAUSE).update(first_claimed_at=operation.started_at, state="skipped")
    world.before_write = lambda: store(operation, give_back_scalers(context_of(operation, world)))
    with pytest.raises(Conflict):
        pause_scalers(context_of(operation, world))
    assert without_versions(world.at(HPA)) == before


# --- others
