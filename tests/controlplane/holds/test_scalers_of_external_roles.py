"""A role that is sized from outside (newer LeaderWorkerSet managers), around the recorded set: through the real engine
and steps, on a controller in memory. Not a proof of that manager."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.fleet.names import SET_ROLE, labels_of
from controlplane.holds import proof
from controlplane.holds.live import read_live
from controlplane.holds.scalers.seen import list_scalers, targets_of
from controlplane.kube.errors import Conflict
from controlplane.kube.resources import ROLE_SCALERS, Resource
from controlplane.operations import services as verbs
from controlplane.operations.engine import advance
from controlplane.operations.models import Operation
from controlplane.upgrades.surroundings import Surroundings
from policy.rollout.scalers import HPA, POD_AUTOSCALER, merged
from tests.conftest import Cast
from tests.controlplane.upgrades.given import ROOMY, verdict, with_image
from tests.controlplane.upgrades.sliced_world import SlicedWorld
from tests.controlplane.upgrades.test_sliced_run import ACTOR, Run
from workers.steps import STEPS

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
SCALERS = {HPA, POD_AUTOSCALER}
KNATIVE = ("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/max-scale")


class ExternalWorld(SlicedWorld):
    """The recorded set whose decode role is sized from outside: its role scaler asks for 2, its own spec says 1."""

    def __init__(self, *scalers: Json) -> None:
        super().__init__("external")
        self.role_scaler["spec"]["replicas"] = 2
        decode = next(child for child in self.children() if labels_of(child)[SET_ROLE] == "decode")
        decode["spec"]["replicas"] = 2
        decode["status"] |= {"replicas": 2, "readyReplicas": 2}
        for each in scalers:
            self._put(each)
        self.history = [self.counts()]

    @property
    def role_scaler(self) -> Json:
        """The role scaler."""
        return next(body for (kind, *_), body in self.objects.items() if kind == ROLE_SCALERS.kind)

    def wanted(self, role: Json) -> int:
        """The controller goes by the scaler where there is one."""
        external = (role.get("scaling") or {}).get("mode") == "External"
        return int(self.role_scaler["spec"]["replicas"]) if external else super().wanted(role)

    def patch(self, resource: Resource, name: str, namespace: str, body: Json, **options: Any) -> Json:
        """Scalers are merged in full."""
        if resource.kind not in SCALERS:
            return super().patch(resource, name, namespace, body, **options)
        stands = self.get(resource, name, namespace)
        if options["resource_version"] != stands["metadata"]["resourceVersion"]:
            raise Conflict("moved on", status=409)
        changed = merged(stands, body)
        return changed if options.get("dry_run") else self._put(changed)

    def scaler(self, kind: str) -> Json:
        """The one scaler of a kind, without its version."""
        body = self.objects[kind, "serving", "busy"]
        metadata = {k: v for k, v in body["metadata"].items() if k != "resourceVersion" and v != {}}
        return {**body, "metadata": metadata}


def on_role(kind: str, **spec: Any) -> Json:
    aimed = {"kind": ROLE_SCALERS.kind, "name": "model-decode"}
    return {
        "kind": kind,
        "metadata": {"name": "busy", "namespace": "serving"},
        "spec": {"scaleTargetRef": aimed, **spec},
    }


AN_HPA = on_role(HPA, minReplicas=1, maxReplicas=9)
OF_KNATIVE = on_role(POD_AUTOSCALER, protocolType="http1")


@pytest.fixture(autouse=True)
def settled_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "GUARDS_SETTLED", 0)


def judged(world: ExternalWorld) -> tuple[dict[str, str], Json]:
    live = read_live(world, "serving", "model")  # type: ignore[arg-type]
    scalers = list_scalers(world, "serving").aimed_at(targets_of(live))  # type: ignore[arg-type]
    around = Surroundings(ROOMY.nodes, (), (), scalers, ())
    found = verdict(live, with_image(live.roles), around=around, version="0.10.0")
    return {each["id"]: each["severity"] for each in found.hazards}, found.rows


def test_rows_go_to_what_the_scaler_asks_for() -> None:
    hazards, rows = judged(ExternalWorld(AN_HPA))
    assert "scaler-on-role" not in hazards and hazards["scaler-is-paused"] == "warn"
    assert "scaler-aims-at-revision" not in hazards, "a role scaler outlives revisions"
    assert (rows["roles"], rows["initial"], rows["target"]) == (["prefill", "decode"], [2, 2], [2, 2])


def test_a_role_that_something_unseen_sizes_is_blocked() -> None:
    assert judged(ExternalWorld())[0]["scaler-on-role"] == "block"
    lost = ExternalWorld(AN_HPA)
    del lost.objects[ROLE_SCALERS.kind, "serving", "model-decode"]
    assert judged(lost)[0]["scaler-on-role"] == "block"


@pytest.mark.parametrize("scaler", [AN_HPA, OF_KNATIVE], ids=["hpa", "knative"])
def test_up_with_the_scaler_paused(users: Cast, scaler: Json) -> None:
    world = ExternalWorld(scaler)
    before = world.scaler(scaler["kind"])
    run = Run(world, users, holds=["first-complete-row"])
    run.turn("waiting", promote=False)
    paused = world.scaler(scaler["kind"])
    if scaler is AN_HPA:
        assert paused["spec"]["behavior"]["scaleUp"]["selectPolicy"] == "Disabled"
        assert (paused["spec"]["minReplicas"], paused["spec"]["maxReplicas"]) == (1, 9)
    else:
        assert [paused["metadata"]["annotations"][key] for key in KNATIVE] == ["2", "2"]
    run.turn("succeeded")
    assert run.side("0", run.new) == {"prefill": 2, "decode": 2}
    assert world.scaler(scaler["kind"]) == before


def test_back_to_what_the_scaler_asks_for(users: Cast) -> None:
    world = ExternalWorld(AN_HPA)
    before = world.counts()
    run = Run(world, users)
    run.turn("waiting", promote=False)
    verbs.abort_operation(operation_id=run.operation.pk, reason="test", actor=ACTOR)
    run.turn("aborted")
    assert {key: count for key, count in world.counts().items() if count} == before
    assert "behavior" not in world.scaler(HPA)["spec"]


def test_a_scaler_that_asked_for_another_number_before_it_was_paused(users: Cast) -> None:
    """The hold keeps the count, the rows would end elsewhere."""
    world = ExternalWorld(AN_HPA)
    run = Run(world, users)
    while run.operation.steps.filter(name="upgrades.open_hold", state="pending").exists():
        advance(operation_id=run.operation.pk, steps=STEPS, connect=lambda *_, **__: world, owner="test")
    world.role_scaler["spec"]["replicas"] = 3
    with pytest.raises(AssertionError, match="base-changed"):
        run.turn("waiting")
    held = Operation.objects.get(pk=run.operation.pk)
    assert "asks for 3 groups, the plan for 2" in held.finding["sentence"]
