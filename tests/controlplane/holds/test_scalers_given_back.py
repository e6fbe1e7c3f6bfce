"""The two steps on a cluster in memory: what others changed meanwhile, and who inherits a pause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.holds.scalers.mark import PAUSED, mark_of
from controlplane.holds.scalers.steps import (
    give_back_scalers,
    pause_scalers,
)
from controlplane.operations.contract import Wait
from controlplane.operations.models import Operation
from policy.rollout.scalers import HPA
from tests.conftest import Cast
from tests.controlplane.holds.scaler_world import (
    ScalerWorld,
    context_of,
    hpa,
)
from tests.controlplane.holds.scaling import (
    disabled,
    gives_back,
    memory,
    pauses,
    superseded,
    without_versions,
)

pytestmark = pytest.mark.django_db
Json = dict[str, Any]


def test_what_somebody_changed_meanwhile_stays_and_is_said(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    pauses(operation, world)
    change = {
        "spec": {"minReplicas": 5, "metrics": [{"type": "Pods"}], "behavior": {"scaleUp": {"tolerance": "1"}}}
    }
    world.edit(HPA, change)
    (found,) = gives_back(operation, world).result["findings"]
    spec = world.at(HPA)["spec"]
    assert spec["minReplicas"] == 5 and spec["metrics"] == [{"type": "Pods"}]
    assert spec["behavior"]["scaleUp"] == {
        **spec["behavior"]["scaleUp"],
        "tolerance": "1",
        "selectPolicy": "Max",
    }
    assert [each["path"] for each in found["fields"]] == ["spec.minReplicas", "spec.behavior", "spec.metrics"]
    assert found["fields"][0] == {"path": "spec.minReplicas", "original": 2, "now": 5}
    assert "kubectl-edit" in found["sentence"] and operation.memory["scaler_findings"] == [found]
    assert PAUSED not in (world.at(HPA)["metadata"].get("annotations") or {})


def test_somebody_who_gave_it_back_by_hand_is_no_finding(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = world.at(HPA)
    pauses(operation, world)
    world.put({**before, "metadata": {**before["metadata"], "uid": "uid-busy"}})
    assert gives_back(operation, world).result["findings"] == []
    assert world.writes == [(HPA, "busy")]


def test_a_record_that_was_taken_off_the_object_is_remembered(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pauses(operation, world)
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: None}}})
    gives_back(operation, world)
    stands = without_versions(world.at(HPA))
    stands["metadata"].pop("annotations", None)
    assert stands == before


def test_a_scaler_that_is_gone_or_another_one_now(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("other"))
    pauses(operation, world)
    world.remove(HPA)
    world.remove(HPA, "other")
    again = hpa("other")
    again["metadata"]["uid"] = "another"
    world.put(again)
    said = gives_back(operation, world)
    assert said.result["given_back"] == []
    assert said.result["gone"] == ["HorizontalPodAutoscaler busy", "HorizontalPodAutoscaler other"]


def test_a_refusal_is_waited_out_while_the_others_go_back(operation: Operation) -> None:
    world = ScalerWorld(hpa(), hpa("other"))
    pauses(operation, world)
    world.refused = {"busy"}
    said = give_back_scalers(context_of(operation, world))
    assert isinstance(said, Wait) and said.who == "operators" and "webhook denied" in said.what
    assert disabled(world.at(HPA)) and not disabled(world.at(HPA, "other"))
    world.unread = {"horizontalpodautoscalers"}
    said = give_back_scalers(context_of(operation, world))
    assert isinstance(said, Wait) and "horizontalpodautoscalers" in said.what
    world.refused, world.unread = set(), set()
    gives_back(operation, world)
    assert not disabled(world.at(HPA))


def test_a_set_that_was_deleted_leaves_its_scalers_as_they_were(operation: Operation) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pauses(operation, world)
    world.remove("DisaggregatedSet", "chat")
    gives_back(operation, world)
    assert without_versions(world.at(HPA)) == before


# --- superseded


def test_a_superseding_operation_inherits_the_first_originals(operation: Operation, users: Cast) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pauses(operation, world)
    world.objects["LeaderWorkerSet", "llm", hpa()["spec"]["scaleTargetRef"]["name"]]["spec"]["replicas"] = 12
    second = superseded(operation, users)
    assert set(second.memory["scalers"]) == {"uid-busy"}
    pauses(second, world)
    mark = mark_of(world.at(HPA))
    assert mark is not None and mark.operation == f"U-{second.pk}"
    assert world.at(HPA)["spec"]["maxReplicas"] == 12, "paused for what stands now"
    assert mark.original == {"spec": {"behavior": None, "maxReplicas": 9, "minReplicas": 2}}
    third = superseded(second, users)
    pauses(third, world)
    gives_back(third, world)
    assert without_versions(world.at(HPA)) == before


def test_a_superseding_operation_that_pauses_nothing_gives_back(operation: Operation, users: Cast) -> None:
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pauses(operation, world)
    second = superseded(operation, users)
    gives_back(second, world)
    assert without_versions(world.at(HPA)) == before


def test_superseded_before_the_database_knew(operation: Operation, users: Cast) -> None:
    """The record on the object is all there is; the next one inherits by it."""
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pause_scalers(context_of(operation, world))
    second = superseded(operation, users)
    assert "scalers" not in second.memory
    pauses(second, world)
    gives_back(second, world)
    assert without_versions(world.at(HPA)) == before


def test_what_another_installation_has_paused_is_inherited(operation: Operation) -> None:
    """The Lease is ours now, so nobody else gives it back."""
    world = ScalerWorld(hpa())
    before = without_versions(world.at(HPA))
    pauses(operation, world)
    mark = json.loads(world.at(HPA)["metadata"]["annotations"][PAUSED])
    world.edit(HPA, {"metadata": {"annotations": {PAUSED: json.dumps({**mark, "installation": "gone"})}}})
    operation.memory = {**memory()}
    operation.save()
    pauses(operation, world)
    gives_back(operation, world)
    assert without_versions(world.at(HPA)) == before
