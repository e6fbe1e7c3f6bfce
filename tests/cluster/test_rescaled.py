"""Replicas that change between plan and start, and what of a plan nobody may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.approvals.models import ChangeRequest
from controlplane.audit.models import AuditEvent
from controlplane.operations.models import Operation
from deploy.rig import workloads
from tests.cluster.driving import Lockstep
from tests.cluster.four import done
from tests.cluster.midway import V1, V2, Midway

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROLES = ("prefill", "decode")


def scaled(lockstep: Lockstep, namespace: str, prefill: int) -> None:
    """Somebody scales the set, and it settles."""
    client = lockstep.rig.client("stranger")
    path = workloads.set_path(namespace, "model")
    roles = client.get(path)["spec"]["roles"]
    roles[0]["spec"]["replicas"] = prefill
    client.patch(path, {"spec": {"roles": roles}})
    workloads.wait_settled(lockstep.rig.client(), namespace, "model")


def checked_again(lockstep: Lockstep, plan: Json) -> Json:
    """The plan after another check."""
    now = lockstep.operator.get(f"/api/v1/plans/{plan['id']}").json()
    said = lockstep.post(lockstep.operator, f"plans/{plan['id']}/check", version=now["version"])
    assert said.status_code == 200, said.json()
    return lockstep.checked(plan["id"])


def approved_plan(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, **options: Any
) -> tuple[Json, int, str]:
    """An approved plan of 3 and 1 groups, its request, and the old label."""
    old = make_set(roles=[workloads.role("prefill", 3, image=V1), workloads.role("decode", 1, image=V1)])
    draft = {"roles": {role: {"image": V2} for role in ROLES}}
    plan = lockstep.draft(lockstep.observe(namespace, "model"), draft, **options)
    request = lockstep.request(plan)
    lockstep.approve(request)
    return plan, request, old


def try_start(lockstep: Lockstep, plan: Json) -> Any:
    """Start at the present version, its warnings acknowledged."""
    now = lockstep.acknowledge(lockstep.operator.get(f"/api/v1/plans/{plan['id']}").json())
    return lockstep.post(lockstep.operator, f"plans/{plan['id']}/start", version=now["version"])


def test_fewer_groups_within_the_bounds_keep_the_votes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    plan, request, old = approved_plan(
        lockstep, namespace, make_set, minimum_ready={"prefill": 1, "decode": 1}
    )
    scaled(lockstep, namespace, 2)
    again = checked_again(lockstep, plan)
    assert again["digest"] == plan["digest"] and again["rows"]["initial"] == [2, 1]
    assert ChangeRequest.objects.get(pk=request).state == "approved"
    begun_ = try_start(lockstep, plan)
    assert begun_.status_code == 201, begun_.json()
    upgrade = Midway(lockstep, namespace, Operation.objects.get(pk=begun_.json()["operation"]), old)
    upgrade.ends("succeeded")
    assert upgrade.counts() == {(upgrade.new, "prefill"): 2, (upgrade.new, "decode"): 1}


@pytest.mark.parametrize(("prefill", "why"), [(5, "devices"), (2, "ready")])
def test_worse_bounds_void_the_votes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, prefill: int, why: str
) -> None:
    plan, request, _ = approved_plan(lockstep, namespace, make_set)
    scaled(lockstep, namespace, prefill)
    again = checked_again(lockstep, plan)
    assert again["digest"] != plan["digest"]
    row = ChangeRequest.objects.get(pk=request)
    assert row.state == "stale"
    voided = AuditEvent.objects.filter(target_kind="change-request", target_id=str(request)).order_by("-id")
    assert "bounds got worse" in voided[0].reason and why in voided[0].reason, voided[0].reason
    refused = try_start(lockstep, plan)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-approved")


def test_a_set_that_was_scaled_after_the_check_is_not_written(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    plan, _, old = approved_plan(lockstep, namespace, make_set)
    scaled(lockstep, namespace, 2)
    begun_ = try_start(lockstep, plan)
    assert begun_.status_code == 201, begun_.json()
    upgrade = Midway(lockstep, namespace, Operation.objects.get(pk=begun_.json()["operation"]), old)
    upgrade.found("foreign-write")
    assert done(upgrade, "open_hold") == []
    upgrade.verb("abort", reason="check again")
    upgrade.ends("aborted")
    assert upgrade.counts() == {(old, "prefill"): 2, (old, "decode"): 1}, "scaled as somebody wished"


# --- what nobody may see


def test_no_value_of_a_variable_is_shown_anywhere(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """In no answer of the API to anybody, in no row of the record, in nothing that people vote on."""
    before, after = "hunter2-was-the-password", "hunter3-is-the-password"
    old = make_set(roles=[workloads.role(name, 1, image=V1, env={"TOKEN": before}) for name in ROLES])
    changes = {"image": V2, "env": {"TOKEN": after}}
    plan = lockstep.draft(lockstep.observe(namespace, "model"), {"roles": dict.fromkeys(ROLES, changes)})
    upgrade = Midway(lockstep, namespace, lockstep.start(plan), old)
    upgrade.ends("succeeded")
    stored = upgrade.live_roles()[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert stored["containers"][0]["env"] == [{"name": "TOKEN", "value": after}], (
        "it was written all the same"
    )

    client = lockstep.api(lockstep.people.admin)
    seen = 0
    for kind in (
        "plans", "change-requests", "operations", "update-records", "workloads", "revisions", "audit",
        "runs", "clusters",
    ):  # fmt: skip
        listed = client.get(f"/api/v1/{kind}?page_size=500")
        assert listed.status_code == 200, (kind, listed.status_code)
        pages = [listed, *(client.get(f"/api/v1/{kind}/{row['id']}") for row in listed.json()["results"])]
        for page in pages:
            seen += page.status_code == 200
            assert before not in page.content.decode() and after not in page.content.decode(), page.request
    assert seen > 20
    rows = str(list(AuditEvent.objects.values()))
    assert before not in rows and after not in rows
