"""Operations over REST: what is shown to whom, and the verbs with their preconditions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.audit.models import AuditEvent
from controlplane.operations.contract import Hold, Wait
from controlplane.operations.models import Operation, Run
from tests.controlplane.operations.toy import Toy, give, make_cluster, make_operation

pytestmark = pytest.mark.django_db
BASE = "/api/v1/operations"


@pytest.fixture
def operation(users: Any) -> Operation:
    made = make_operation(users.operator)
    Toy(
        plays={"toy.one": [give(Wait(30, "promote past row 3", who="operators", person=True, hold_key="r"))]}
    ).run(made)
    return made


def post(client: Any, path: str, *, version: int | None = None, key: str | None = None, **body: Any) -> Any:
    headers = {"Idempotency-Key": key or str(uuid.uuid4())}
    if version is not None:
        headers["If-Match"] = f'"{version}"'
    return client.post(path, body, headers=headers)


def version_of(operation: Operation) -> int:
    return Operation.objects.get(pk=operation.pk).version


def test_one_operation_says_what_it_waits_for(
    api: Callable[..., Any], users: Any, operation: Operation
) -> None:
    answer = api(users.viewer).get(f"{BASE}/{operation.pk}")
    assert answer.status_code == 200
    body = answer.json()
    assert body["status"]["text"].startswith("Waits for promote past row 3, since ")
    assert "operators can act" in body["status"]["text"]
    assert body["verbs"] == ["promote", "stop", "abort"]
    assert [step["name"] for step in body["steps"]] == ["toy.one", "toy.two", "toy.end"]
    assert body["targets"] == [{"kind": "set", "uid": "set-1", "released": False}]
    assert answer["ETag"] == f'"{body["version"]}"'


def test_a_finding_comes_with_its_next_action(api: Callable[..., Any], users: Any) -> None:
    held = make_operation(users.operator)
    Toy(plays={"toy.one": [give(Hold("gate-red", "The gate is red.", "Wait for green, then resume."))]}).run(
        held
    )
    body = api(users.viewer).get(f"{BASE}/{held.pk}").json()
    assert body["finding"]["next_action"] == "Wait for green, then resume."
    assert "The gate is red" in body["status"]["text"]
    assert body["verbs"] == ["retry", "resume", "stop", "adopt", "abort"]


def test_the_list_takes_a_constant_number_of_queries(
    api: Callable[..., Any], users: Any, django_assert_max_num_queries: Any
) -> None:
    cluster = make_cluster()
    for number in range(12):
        make_operation(users.operator, cluster=cluster, targets=[f"set-{number}"])
    client = api(users.viewer)
    with django_assert_max_num_queries(8):
        body = client.get(f"{BASE}?state=working&page_size=10").json()
    assert (body["count"], len(body["results"])) == (12, 10)


def test_an_outsider_sees_nothing(api: Callable[..., Any], users: Any, operation: Operation) -> None:
    client = api(users.outsider)
    assert client.get(BASE).json()["count"] == 0
    assert client.get(f"{BASE}/{operation.pk}").status_code == 404
    assert post(client, f"{BASE}/{operation.pk}/abort", version=1).status_code == 404


def test_promote_by_rest(api: Callable[..., Any], users: Any, operation: Operation) -> None:
    client, path = api(users.operator), f"{BASE}/{operation.pk}/promote"
    version = version_of(operation)
    stale = post(client, path, version=version - 1)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale-edit")
    key = str(uuid.uuid4())
    first = post(client, path, version=version, key=key, reason="gates are green")
    assert first.status_code == 200, first.json()
    assert first.json()["promoted"]["by"] == users.operator.username
    assert first["ETag"] == f'"{version + 1}"'
    again = post(client, path, version=version, key=key, reason="gates are green")
    assert again.json()["version"] == first.json()["version"], "sent twice, done once"
    assert AuditEvent.objects.filter(action="operation.promote", outcome="done").count() == 1
    late = post(client, path, version=version + 1)
    assert (late.status_code, late.json()["code"]) == (409, "not-at-a-hold")


@pytest.mark.parametrize("verb", ["promote", "resume", "retry", "stop", "abort", "adopt"])
def test_verbs_need_right_key_and_version(
    api: Callable[..., Any], users: Any, operation: Operation, verb: str
) -> None:
    path, before = f"{BASE}/{operation.pk}/{verb}", version_of(operation)
    refused = post(api(users.viewer), path, version=version_of(operation), reason="x")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    client = api(users.operator)
    assert post(client, path, reason="x").status_code == 428
    assert client.post(path, {"reason": "x"}, headers={"If-Match": '"1"'}).status_code == 428
    assert version_of(operation) == before


def test_abort_and_a_refusal_are_both_on_record(
    api: Callable[..., Any], users: Any, operation: Operation
) -> None:
    client = api(users.operator)
    answer = post(client, f"{BASE}/{operation.pk}/abort", version=version_of(operation), reason="bad image")
    assert (answer.status_code, answer.json()["phase"]) == (200, "aborting")
    refused = post(client, f"{BASE}/{operation.pk}/resume", version=version_of(operation))
    assert (refused.status_code, refused.json()["code"]) == (409, "not-held")
    rows = AuditEvent.objects.filter(actor=users.operator.username).order_by("id")
    assert [(row.outcome, row.code) for row in rows if row.action != "operation.start"][-2:] == [
        ("done", ""),
        ("refused", "not-held"),
    ]


def test_a_takeover_is_a_run_that_a_worker_does(api: Callable[..., Any], users: Any) -> None:
    cluster = make_cluster()
    path = f"/api/v1/clusters/{cluster.pk}/take-over"
    assert post(api(users.operator), path, reason="x").status_code == 403
    client = api(users.admin)
    assert post(client, path).status_code == 422, "nobody takes a cluster over without saying why"
    answer = post(client, path, reason="the other installation is gone")
    assert answer.status_code == 202
    run = Run.objects.get(pk=answer.json()["id"])
    assert (run.kind, run.args["by"]) == ("operations.take_over", users.admin.username)
    assert client.get(f"/api/v1/runs/{run.pk}").json()["state"] == "waiting"
    assert AuditEvent.objects.filter(action="cluster.request_take_over", target_id="east").exists()
