"""Refusals over REST on the path of an upgrade: each with its code, what to do, and a row in the record."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from rest_framework.test import APIClient

from controlplane.access.models import Grant
from controlplane.approvals.models import ChangeRequest
from controlplane.audit.models import AuditEvent
from controlplane.errors import Unavailable
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster
from controlplane.operations.clock import database_now
from controlplane.operations.models import Operation
from controlplane.upgrades.models import Plan
from tests.cluster.driving import Lockstep
from tests.cluster.midway import V2, V3, Json, Midway, at_first_hold, small_roles
from tests.conftest import make_person
from tests.controlplane.access.test_tokens import mint

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
NEW_IMAGES: Json = {"roles": {role: {"image": V2} for role in ("prefill", "decode")}}


@pytest.fixture
def plan(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Json:
    """A checked plan with its warnings acknowledged."""
    make_set(roles=small_roles())
    return lockstep.acknowledge(lockstep.draft(lockstep.observe(namespace, "model"), NEW_IMAGES))


def refused(answer: Any, status: int, code: str, *, who: str = "olga") -> Json:
    """A whole problem document, and the refusal on record under the caller's name."""
    body: Json = answer.json()
    assert (answer.status_code, body.get("code")) == (status, code), body
    assert answer["Content-Type"] == "application/problem+json"
    assert body["detail"] and body.get("next_action"), body
    row = AuditEvent.objects.filter(outcome="refused", code=code).order_by("-id").first()
    assert row is not None and row.actor.split("/")[0] == who, (row, who)
    return body


def program(secret: str) -> APIClient:
    """A client with a token."""
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
    client.default_format = "json"
    return client


def now_of(lockstep: Lockstep, plan: Json) -> Json:
    """The plan as it stands."""
    found: Json = lockstep.operator.get(f"/api/v1/plans/{plan['id']}").json()
    return found


def start(lockstep: Lockstep, plan: Json, client: APIClient | None = None) -> Any:
    """Try to start it at its present version."""
    version = now_of(lockstep, plan)["version"]
    return lockstep.post(client or lockstep.operator, f"plans/{plan['id']}/start", version=version)


def edit(lockstep: Lockstep, plan: Json, client: APIClient, **changes: Any) -> Any:
    """Edit it at its present version."""
    version = now_of(lockstep, plan)["version"]
    return client.patch(f"/api/v1/plans/{plan['id']}", changes, headers={"If-Match": f'"{version}"'})


def cast(lockstep: Lockstep, request_id: int, client: APIClient, digest: str = "") -> Any:
    """One approval of what stands, or of another digest."""
    digest = digest or ChangeRequest.objects.get(pk=request_id).digest
    body = {"choice": "approve", "digest": digest}
    return lockstep.post(client, f"change-requests/{request_id}/votes", body)


# --- votes


def test_whoever_asked_or_edited_has_no_vote(lockstep: Lockstep, plan: Json) -> None:
    editor = make_person("eddy", Grant.Role.OPERATOR, Grant.Role.APPROVER)
    Grant.objects.create(user=lockstep.people.operator, role=Grant.Role.APPROVER)
    assert edit(lockstep, plan, lockstep.api(editor), reason="said better").status_code == 200
    request = lockstep.request(lockstep.checked(plan["id"]))
    refused(cast(lockstep, request, lockstep.operator), 403, "requester")
    refused(cast(lockstep, request, lockstep.api(editor)), 403, "editor", who="eddy")
    assert ChangeRequest.objects.get(pk=request).state == "open"


def test_a_vote_on_what_was_changed_since_counts_for_nothing(lockstep: Lockstep, plan: Json) -> None:
    request = lockstep.request(plan)
    old = ChangeRequest.objects.get(pk=request).digest
    lockstep.approve(request)
    images = {"roles": {role: {"image": V3} for role in ("prefill", "decode")}}
    assert edit(lockstep, plan, lockstep.operator, draft=images).status_code == 200
    assert ChangeRequest.objects.get(pk=request).state == "stale"
    lockstep.checked(plan["id"])
    refused(
        cast(lockstep, request, lockstep.api(lockstep.people.approver), old),
        409,
        "request-not-open",
        who="ana",
    )
    lockstep.acknowledge(now_of(lockstep, plan))
    body = refused(start(lockstep, plan), 409, "not-approved")
    assert "equest approval" in body["next_action"]

    again = lockstep.request(now_of(lockstep, plan))
    seen = cast(lockstep, again, lockstep.api(lockstep.people.approver), old)
    refused(seen, 409, "digest-mismatch", who="ana")


def test_what_has_expired_takes_no_vote_and_starts_nothing(lockstep: Lockstep, plan: Json) -> None:
    request = lockstep.request(plan)
    past = database_now() - timedelta(seconds=1)
    ChangeRequest.objects.filter(pk=request).update(expires_at=past)
    refused(
        cast(lockstep, request, lockstep.api(lockstep.people.approver)), 409, "request-not-open", who="ana"
    )
    ChangeRequest.objects.filter(pk=request).update(expires_at=database_now() + timedelta(hours=1))
    lockstep.approve(request)
    ChangeRequest.objects.filter(pk=request).update(expires_at=past)
    refused(start(lockstep, plan), 409, "not-approved")
    assert not Operation.objects.exists()


def test_no_token_votes_past_a_hold_and_nobody_who_started_it(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = at_first_hold(lockstep, namespace, make_set)
    request = int(lockstep.state(midway.operation).waits_for["what"].split()[1])
    _, secret = mint(lockstep.people.approver, scopes=["read", "plan", "operate"])
    refused(cast(lockstep, request, program(secret)), 403, "token-cannot-vote", who="ana")
    Grant.objects.create(user=lockstep.people.operator, role=Grant.Role.APPROVER)
    refused(cast(lockstep, request, lockstep.operator), 403, "requester")
    midway.look()
    assert lockstep.state(midway.operation).state == "waiting" and midway.counts() == midway.first_row()


def test_an_approval_that_expires_before_the_first_write_holds_the_operation(
    lockstep: Lockstep, plan: Json, namespace: str
) -> None:
    operation = lockstep.start(plan)
    ChangeRequest.objects.update(expires_at=database_now() - timedelta(seconds=1))
    midway = Midway(lockstep, namespace, operation, operation.memory["old"])
    midway.found("approval-gone")
    assert [role["spec"] for role in midway.live_roles()] == [
        role["spec"]
        for role in Plan.objects.get(pk=plan["id"]).content["roles_before"]  # type: ignore[index]
    ]
    midway.goes_back()


# --- starting


def test_a_viewer_an_approver_and_a_reading_token_start_nothing(lockstep: Lockstep, plan: Json) -> None:
    lockstep.approve(lockstep.request(plan))
    people = lockstep.people
    body = refused(start(lockstep, plan, lockstep.api(people.viewer)), 403, "not-allowed", who="vic")
    assert body["facts"]["roles"] == ["operator"]
    refused(start(lockstep, plan, lockstep.api(people.approver)), 403, "not-allowed", who="ana")
    _, secret = mint(people.operator, scopes=["read"])
    refused(start(lockstep, plan, program(secret)), 403, "token-scope")
    assert start(lockstep, plan, lockstep.api(people.outsider)).status_code == 404
    assert not Operation.objects.exists()


def test_nothing_starts_without_approval(lockstep: Lockstep, plan: Json) -> None:
    refused(start(lockstep, plan), 409, "not-approved")
    request = lockstep.request(plan)
    refused(start(lockstep, plan), 409, "not-approved")
    said = lockstep.vote(request, lockstep.people.approver, "reject", comment="not on a Friday")
    assert said.status_code == 200
    refused(start(lockstep, plan), 409, "not-approved")
    assert not Operation.objects.exists()


def test_a_set_is_upgraded_by_one_operation_at_a_time(lockstep: Lockstep, plan: Json, namespace: str) -> None:
    other = lockstep.acknowledge(lockstep.draft(lockstep.observe(namespace, "model"), NEW_IMAGES))
    lockstep.approve(lockstep.request(other))
    first = lockstep.start(plan)
    body = refused(start(lockstep, other), 409, "target-taken")
    assert body["facts"]["operation"] == first.pk and str(first.pk) in body["detail"]
    body = refused(start(lockstep, plan), 409, "target-taken")
    assert body["facts"]["operation"] == first.pk
    refused(edit(lockstep, plan, lockstep.operator, reason="x"), 409, "plan-running")
    assert Operation.objects.count() == 1


def test_a_warning_has_to_be_acknowledged_by_the_requester(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    plan = lockstep.draft(lockstep.observe(namespace, "model"), NEW_IMAGES)
    asked = lockstep.post(lockstep.operator, f"plans/{plan['id']}/request", version=plan["version"])
    body = refused(asked, 409, "hazards-not-acknowledged")
    assert "path-not-examined" in body["facts"]["hazards"]
    second = make_person("oscar", Grant.Role.OPERATOR)
    said = lockstep.post(
        lockstep.api(second),
        f"plans/{plan['id']}/acknowledge",
        {"hazard": "path-not-examined"},
        version=plan["version"],
    )
    refused(said, 409, "not-the-requester", who="oscar")


def test_what_this_installation_may_not_write_to_is_not_started(lockstep: Lockstep, plan: Json) -> None:
    lockstep.approve(lockstep.request(plan))
    Cluster.objects.update(writes="foreign", writes_reason="Installation 7 holds the Lease.")
    assert "Installation 7" in refused(start(lockstep, plan), 409, "cluster-read-only")["detail"]


# --- preconditions


@pytest.mark.parametrize("action", ["start", "request", "check", "acknowledge"])
def test_an_action_names_what_it_saw_and_carries_a_key(lockstep: Lockstep, plan: Json, action: str) -> None:
    path, body = f"/api/v1/plans/{plan['id']}/{action}", {"hazard": "path-not-examined"}
    key, match = {"Idempotency-Key": str(uuid.uuid4())}, {"If-Match": f'"{plan["version"]}"'}
    stale = {"If-Match": f'"{plan["version"] - 1}"'}
    client = lockstep.operator
    facts = refused(client.post(path, body, headers={**key, **stale}), 412, "stale-edit")["facts"]
    assert facts == {"expected": plan["version"] - 1, "actual": plan["version"]}
    refused(client.post(path, body, headers={"Idempotency-Key": str(uuid.uuid4())}), 428, "if-match-missing")
    refused(client.post(path, body, headers=match), 428, "idempotency-key-missing")
    assert now_of(lockstep, plan)["version"] == plan["version"]


def test_an_edit_of_what_has_changed_is_refused(lockstep: Lockstep, plan: Json) -> None:
    path = f"/api/v1/plans/{plan['id']}"
    old = {"If-Match": f'"{plan["version"] - 1}"'}
    refused(lockstep.operator.patch(path, {"reason": "x"}, headers=old), 412, "stale-edit")
    refused(lockstep.operator.patch(path, {"reason": "x"}), 428, "if-match-missing")


# --- drafts


def pod_of(role: Json) -> Json:
    pod: Json = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    return pod


def account(roles: list[Json]) -> None:
    pod_of(roles[0])["serviceAccountName"] = "cluster-admin"


def host_path(roles: list[Json]) -> None:
    pod_of(roles[0])["volumes"] = [{"name": "root", "hostPath": {"path": "/"}}]


def privileged(roles: list[Json]) -> None:
    pod_of(roles[0])["containers"][0]["securityContext"] = {"privileged": True}


def host_network(roles: list[Json]) -> None:
    pod_of(roles[0])["hostNetwork"] = True


def another_secret(roles: list[Json]) -> None:
    pod_of(roles[0])["containers"][0]["envFrom"] = [{"secretRef": {"name": "tokens"}}]


def command(roles: list[Json]) -> None:
    pod_of(roles[0])["containers"][0]["command"] = ["/bin/sh"]


def labels(roles: list[Json]) -> None:
    template = roles[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template.setdefault("metadata", {})["labels"] = {"llm-d.ai/role": "decode"}


def order(roles: list[Json]) -> None:
    roles.reverse()


def renamed(roles: list[Json]) -> None:
    roles[0]["name"] = "fill"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (account, "roles[prefill].spec.leaderWorkerTemplate.workerTemplate.spec.serviceAccountName"),
        (host_path, "roles[prefill].spec.leaderWorkerTemplate.workerTemplate.spec.volumes"),
        (privileged, ".spec.containers[engine].securityContext"),
        (host_network, ".workerTemplate.spec.hostNetwork"),
        (another_secret, ".spec.containers[engine].envFrom"),
        (command, ".spec.containers[engine].command"),
        (labels, ".workerTemplate.metadata"),
        (order, "roles"),
        (renamed, "roles[fill]"),
    ],
)
def test_what_would_make_our_account_a_ladder_is_refused_by_path(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, change: Callable[[list[Json]], None], path: str
) -> None:
    make_set(roles=small_roles())
    roles = small_roles(V2)
    change(roles)
    plan = lockstep.draft(lockstep.observe(namespace, "model"), {"spec_roles": roles})
    assert (plan["state"], plan["problem"]["code"]) == ("blocked", "change-not-ours"), plan["problem"]
    paths = [refusal["path"] for refusal in plan["problem"]["facts"]["refusals"]]
    assert any(one.endswith(path) for one in paths), paths
    assert path.rpartition(".")[2] in plan["problem"]["detail"] and plan["problem"]["next_action"]
    asked = lockstep.post(lockstep.operator, f"plans/{plan['id']}/request", version=plan["version"])
    body = refused(asked, 409, "plan-not-ready")
    assert body["facts"]["problem"]["code"] == "change-not-ours"


def test_a_field_that_no_draft_may_change_is_named(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    workload = lockstep.observe(namespace, "model")
    for field, value in (("serviceAccountName", "x"), ("imgae", "x"), ("hostNetwork", True)):
        plan = lockstep.draft(workload, {"roles": {"prefill": {field: value}}})
        assert (plan["state"], plan["problem"]["code"]) == ("blocked", "not-in-a-draft"), plan["problem"]
        assert field in plan["problem"]["field"] and plan["problem"]["next_action"]
    plan = lockstep.draft(workload, {"roles": {"prefil": {"image": V2}}})
    assert plan["problem"]["code"] == "role-unknown"


@pytest.mark.parametrize(
    ("sent", "code", "field"),
    [
        ({"draft": {}}, "draft-form", "draft"),
        ({"draft": {"image": V2}}, "draft-form", "draft"),
        ({"draft": {**NEW_IMAGES, "spec_roles": []}}, "draft-form", "draft"),
        ({"options": {"hold": ["half"]}}, "option-invalid", "options.hold"),
        ({"options": {"holds": ["whenever"]}}, "option-invalid", "options.holds"),
        ({"options": {"promote": "never"}}, "option-invalid", "options.promote"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_at_once(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, sent: Json, code: str, field: str
) -> None:
    make_set(roles=small_roles())
    body = {"workload": lockstep.observe(namespace, "model").pk, "reason": "x", "draft": NEW_IMAGES, **sent}
    assert refused(lockstep.post(lockstep.operator, "plans", body), 422, code)["field"] == field
    assert not Plan.objects.exists()


# --- without credentials


def test_a_web_process_needs_no_credentials_and_has_none(lockstep: Lockstep, plan: Json) -> None:
    lockstep.approve(lockstep.request(plan))
    kept, settings.LOCKSTEP_KUBECONFIG = settings.LOCKSTEP_KUBECONFIG, ""
    try:
        with pytest.raises(Unavailable) as missing:
            connect_cluster(lockstep.cluster)
        assert missing.value.code == "no-cluster-credentials" and missing.value.next_action
        assert start(lockstep, plan).status_code == 201, "what people do over REST needs the database alone"
        operation = Operation.objects.get()
        lockstep.turn()
        waits = lockstep.state(operation).waits_for
        assert "holds no cluster credentials" in waits["what"], "a process without them leaves it to the next"
    finally:
        settings.LOCKSTEP_KUBECONFIG = kept
    assert lockstep.finished(operation) == "succeeded"
