"""Combinations in the database and the API: numbers, states, what is shown and what is not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.audit.models import AuditEvent
from controlplane.errors import Refused
from controlplane.operations.clock import database_now
from controlplane.operations.models import Run
from controlplane.paths.models import Pool
from controlplane.recovery.models import Combination
from controlplane.recovery.services import verify_combination
from tests.conftest import Cast, make_person
from tests.controlplane.recovery.given import ACTOR, make_cluster, make_workload, stored

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
Json = dict[str, Any]


def post(client: APIClient, path: str, body: Json | None = None, version: int | None = None) -> Any:
    """A POST with a fresh key."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    if version is not None:
        headers["If-Match"] = f'"{version}"'
    return client.post(f"/api/v1/{path}", body or {}, headers=headers)


def test_the_same_state_is_one_combination_and_another_one_has_the_next_number() -> None:
    cluster = make_cluster()
    first = stored(cluster, verified=False)
    assert stored(cluster, verified=False).pk == first.pk
    second = stored(cluster, text="edited", verified=False)
    assert (first.number, second.number) == (1, 2)
    assert stored(cluster, text="edited", uid="uid-2", verified=False).number == 3, "another set of that name"
    assert stored(make_cluster("south"), verified=False).number == 1


def test_what_was_revoked_is_captured_anew(users: Cast, api: Api) -> None:
    cluster = make_cluster()
    found = stored(cluster)
    said = post(api(users.operator), f"combinations/{found.pk}/revoke", {"reason": "it leaks"}, found.version)
    assert said.status_code == 200 and said.json()["state"] == "revoked"
    again = stored(cluster, verified=False)
    assert again.pk != found.pk and again.state == "candidate"
    with pytest.raises(Refused, match="combination-revoked"):
        verify_combination(combination_id=found.pk, evidence={}, actor=ACTOR)
    rows = AuditEvent.objects.filter(target_kind="combination", target_id=str(found.pk)).order_by("id")
    assert [row.action for row in rows] == ["combination.capture", "combination.verify", "combination.revoke"]
    assert rows[2].reason == "it leaks"


def test_verified_by_what_and_once(users: Cast) -> None:
    found = stored(make_cluster(), verified=False)
    done = verify_combination(combination_id=found.pk, evidence={"kind": "operation", "id": 7}, actor=ACTOR)
    again = verify_combination(combination_id=found.pk, evidence={"kind": "other", "id": 8}, actor=ACTOR)
    assert done.verified_at and again.evidence == {"kind": "operation", "id": 7}
    assert again.version == done.version


def test_pin_and_unpin_need_the_version_that_was_seen(users: Cast, api: Api) -> None:
    found, client = stored(make_cluster()), api(users.operator)
    seen = client.get(f"/api/v1/combinations/{found.pk}")
    version = int(seen["ETag"].strip('"'))
    assert post(client, f"combinations/{found.pk}/pin", version=version - 1).status_code == 412
    pinned = post(client, f"combinations/{found.pk}/pin", version=version)
    assert pinned.json()["pinned"] is True and pinned["ETag"] == f'"{version + 1}"'
    assert post(client, f"combinations/{found.pk}/unpin", version=version + 1).json()["pinned"] is False
    for other in (users.viewer, users.approver):
        assert post(api(other), f"combinations/{found.pk}/pin", version=version + 2).status_code == 403
    assert api(users.outsider).get(f"/api/v1/combinations/{found.pk}").status_code == 404


def test_lists_are_scoped_filtered_and_ask_the_same_number_of_questions(
    users: Cast, api: Api, django_assert_max_num_queries: Any
) -> None:
    cluster = make_cluster()
    for number in range(6):
        stored(cluster, text=f"text {number}", verified=number % 2 == 0)
    client = api(users.viewer)
    with django_assert_max_num_queries(7):
        listed = client.get("/api/v1/combinations?state=verified").json()
    assert [row["number"] for row in listed["results"]] == [5, 3, 1]
    assert "document" not in listed["results"][0]
    elsewhere = make_person("nina", "viewer", cluster="south")
    assert api(elsewhere).get("/api/v1/combinations").json()["results"] == []


def test_env_values_and_contents_are_not_shown_and_secrets_have_names_alone(users: Cast, api: Api) -> None:
    cluster = make_cluster()
    found = stored(cluster, env={"TOKEN": "hunter2"}, text="a private prompt")
    shown = api(users.viewer).get(f"/api/v1/combinations/{found.pk}").json()
    text = json.dumps(shown)
    assert "hunter2" not in text and "a private prompt" not in text
    assert shown["document"]["secrets"] == [
        {"name": "pull", "roles": ["decode"], "restored": "cannot be restored"}
    ]
    other = stored(cluster, env={"TOKEN": "hunter3"}, text="a private prompt")
    assert other.digest != found.digest, "the digest covers what is not shown"
    assert found.document["config_maps"]["prompts"]["data"] == {"a.txt": "a private prompt"}


def test_capture_diff_and_plan_are_runs(users: Cast, api: Api) -> None:
    cluster = make_cluster()
    workload, found = make_workload(cluster), stored(cluster)
    asked = post(api(users.operator), f"workloads/{workload.pk}/capture", {"reason": "before a test"})
    assert asked.status_code == 202 and asked.json()["kind"] == "recovery.capture_now"
    assert post(api(users.viewer), f"workloads/{workload.pk}/capture", {"reason": "x"}).status_code == 403
    for kind in ("diff", "plan"):
        assert post(api(users.viewer), f"combinations/{found.pk}/{kind}").status_code == 202
    assert set(Run.objects.values_list("kind", flat=True)) == {
        "recovery.capture_now",
        "recovery.compare",
        "recovery.plan_restore",
    }


def test_the_operational_artifact_has_a_version_and_a_digest(users: Cast, api: Api) -> None:
    cluster = make_cluster()
    workload, client = make_workload(cluster), api(users.viewer)
    missing = client.get(f"/api/v1/workloads/{workload.pk}/export")
    assert (missing.status_code, missing.json()["code"]) == (404, "nothing-captured")
    stored(cluster)
    stored(cluster, text="newer", verified=False, env={"TOKEN": "hunter2"})
    first = client.get(f"/api/v1/workloads/{workload.pk}/export").json()
    assert (first["kind"], first["version"]) == ("operational-artifact", 1)
    assert first["component_compatibility"]["moves_together"] == ["prefill", "decode"]
    assert (first["recovery"]["captured"]["number"], first["recovery"]["verified"]["number"]) == (2, 1)
    assert "hunter2" not in json.dumps(first)
    assert client.get(f"/api/v1/workloads/{workload.pk}/export").json()["digest"] == first["digest"]
    Combination.objects.filter(number=2).update(state="revoked")
    assert client.get(f"/api/v1/workloads/{workload.pk}/export").json()["digest"] != first["digest"]


def test_the_artifact_of_a_pool_has_those_of_its_sets(users: Cast, api: Api) -> None:
    cluster = make_cluster()
    make_workload(cluster)
    stored(cluster)
    now = database_now()
    pool = Pool.objects.create(
        cluster=cluster,
        uid="pool-1",
        namespace="serving",
        name="front",
        path={"sets": ["chat"]},
        observed_at=now,
    )
    shown = api(users.viewer).get(f"/api/v1/pools/{pool.pk}/export").json()
    assert shown["pool"]["name"] == "front" and [each["set"]["name"] for each in shown["sets"]] == ["chat"]
    assert shown["digest"].startswith("sha256:")
