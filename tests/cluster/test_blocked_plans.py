"""Sets and drafts that an upgrade in place would harm: the plan is blocked, names the hazard, and cannot be started."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.fleet.models import Revision
from controlplane.operations.clock import database_now
from deploy.rig import ApiError, until, workloads
from tests.cluster.driving import Lockstep
from tests.cluster.midway import V2, V3, Json, at_first_hold, small_roles
from tests.cluster.scalers import hpa
from tests.cluster.test_faults import webhooks

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]


def images(image: str = V2) -> Json:
    """A draft of another image for both roles."""
    return {"roles": {role: {"image": image} for role in ("prefill", "decode")}}


def blocked(lockstep: Lockstep, namespace: str, draft: Json, **options: object) -> dict[str, Json]:
    """The blocking hazards of a plan by id; it can be neither acknowledged nor requested nor started."""
    plan = lockstep.draft(lockstep.observe(namespace, "model"), draft, **options)
    assert plan["state"] == "blocked" and plan["hazards"], (plan["state"], plan["problem"])
    found = {one["id"]: one for one in plan["hazards"] if one["severity"] == "block"}
    for one in found.values():
        assert one["sentence"] and one["next_action"]
        said = lockstep.post(
            lockstep.operator,
            f"plans/{plan['id']}/acknowledge",
            {"hazard": one["id"]},
            version=plan["version"],
        )
        assert (said.status_code, said.json()["code"]) == (409, "hazard-blocks")
    for verb in ("request", "start"):
        said = lockstep.post(lockstep.operator, f"plans/{plan['id']}/{verb}", version=plan["version"])
        assert (said.status_code, said.json()["code"]) == (409, "plan-not-ready")
        assert said.json()["facts"]["blocking"] == plan["blocking"]
    assert set(plan["blocking"]) == set(found)
    return found


def test_a_scaler_that_somebody_else_manages(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    label = make_set(roles=small_roles())
    client = lockstep.rig.client("stranger")
    boss = client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": namespace}}
    )
    scaler = hpa(namespace, child=f"model-{label}-decode", minReplicas=1)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": boss["metadata"]["uid"]}
    scaler["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    client.create(scaler)
    found = blocked(lockstep, namespace, images())
    assert "HorizontalPodAutoscaler busy" in found["scaler-on-role"]["sentence"]
    assert "ConfigMap boss manages it" in str(found["scaler-on-role"]["facts"])
    client.delete(client.path(scaler))
    assert lockstep.draft(lockstep.observe(namespace, "model"), images())["state"] == "ready"


@pytest.mark.parametrize("aim", ["set", "child"])
def test_a_scaler_that_can_be_paused_is_a_warning(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, aim: str
) -> None:
    label = make_set(roles=small_roles())
    scaler = hpa(namespace, child=f"model-{label}-decode", minReplicas=1)
    if aim == "set":
        scaler["spec"]["scaleTargetRef"] = {
            "apiVersion": workloads.GROUP,
            "kind": "DisaggregatedSet",
            "name": "model",
        }
    lockstep.rig.client("stranger").create(scaler)
    plan = lockstep.draft(lockstep.observe(namespace, "model"), images())
    assert plan["state"] == "ready", plan["hazards"]
    found = {one["id"]: one["severity"] for one in plan["hazards"]}
    assert found["scaler-is-paused"] == "warn"
    assert ("scaler-aims-at-revision" in found) == (aim == "child")


def test_a_scaler_that_comes_at_a_hold_scales_nothing(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = at_first_hold(lockstep, namespace, make_set)
    path = (
        f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{midway.new}-decode/scale"
    )
    account = lockstep.rig.client("admin")
    with pytest.raises(ApiError, match=f"lockstep hold U-{midway.operation.pk}: scaling"):
        account.patch(path, {"spec": {"replicas": 4}})
    midway.ends("succeeded")


def test_more_than_one_live_revision(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    midway = at_first_hold(lockstep, namespace, make_set)
    found = blocked(lockstep, namespace, images(V3))
    assert set(found["several-live-revisions"]["facts"]["revisions"]) == {midway.old, midway.new}
    assert "rollout-in-flight" in found
    midway.goes_back()


def test_a_role_at_0_in_the_live_revision(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    """The controller itself would correct it: it is away, and so are its webhooks."""
    label = make_set(roles=small_roles())
    rig, client = lockstep.rig, lockstep.rig.client()
    rig.stop_lws()
    try:
        addresses = [*webhooks(client, "disaggregatedsets"), *webhooks(client, "leaderworkersets")]
        for path in dict(addresses):
            client.delete(path)
        child = f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{label}-decode"
        client.patch(child, {"spec": {"replicas": 0}})
        found = blocked(lockstep, namespace, images())
        assert found["role-at-zero"]["facts"] == {"roles": ["decode"]}
    finally:
        rig.start_lws()
        rig.mend_webhooks()
    until("the controller to correct it", lambda: workloads.settled(client, namespace, "model"))


def test_a_set_without_groups(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    roles = small_roles()
    for role in roles:
        role["spec"]["replicas"] = 0
    make_set(roles=roles, wait=False)
    client = lockstep.rig.client()
    until("the sets", lambda: len(workloads.lws_of(client, namespace, "model")) == 2)
    found = blocked(lockstep, namespace, images())
    assert "no-live-revision" in found


def test_a_recorded_revision_with_other_role_names(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    workload = lockstep.observe(namespace, "model")
    roles = [{**role, "name": name} for role, name in zip(small_roles(V2), ("fill", "code"), strict=True)]
    recorded = Revision.objects.create(
        workload=workload,
        label="0badcafe",
        started_at=database_now(),
        roles=roles,
        roles_digest="sha256:" + "0" * 64,
    )
    found = blocked(lockstep, namespace, {"back_to": recorded.pk})
    assert "all-roles-replaced" in found


def test_percent_unavailable_without_surge(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    """25 % of 3 is nothing to the set's webhook at a step, although the whole was admitted."""
    roles = [
        workloads.role("prefill", 4, surge=0, unavailable="25%"),
        workloads.role("decode", 4, surge=0, unavailable="25%"),
    ]
    make_set(roles=roles)
    assert "surge-zero-percent" in blocked(lockstep, namespace, images())


def test_a_peak_that_does_not_fit(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    make_set(roles=small_roles())
    gpus = {"nvidia.com/gpu": "999"}
    draft = {"roles": {"prefill": {"image": V2, "resources": {"limits": gpus, "requests": gpus}}}}
    found = blocked(lockstep, namespace, draft)
    assert found["does-not-fit"]["facts"]["first_group"]


@pytest.mark.parametrize(
    ("key", "who"),
    [
        ("argocd.argoproj.io/tracking-id", "Argo CD"),
        ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ],
)
def test_a_set_that_a_deployer_owns(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, key: str, who: str
) -> None:
    make_set(roles=small_roles())
    path = workloads.set_path(namespace, "model")
    lockstep.rig.client("stranger").patch(path, {"metadata": {"annotations": {key: "x"}}})
    found = blocked(lockstep, namespace, images())
    assert who in found["another-writer"]["sentence"]


def test_a_draft_that_rolls_nothing(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    make_set(roles=small_roles())
    assert "no-template-changes" in blocked(lockstep, namespace, {"roles": {"prefill": {"replicas": 3}}})


def test_a_hold_that_no_row_can_keep(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    """Without surge the first mixed row has less than the plan's least."""
    roles = [
        workloads.role("prefill", 2, surge=0, unavailable=1),
        workloads.role("decode", 1, surge=0, unavailable=1),
    ]
    make_set(roles=roles)
    found = blocked(lockstep, namespace, images(), minimum_ready={"prefill": 2, "decode": 1})
    assert "row-under-minimum" in found
