"""Clusters, workloads and revisions over the API: scope, filters, ages, and a constant number of queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from controlplane.access.models import Grant
from controlplane.audit.actor import command
from controlplane.audit.models import AuditEvent
from controlplane.fleet.models import Cluster, Workload
from controlplane.fleet.services import (
    Observation,
    claim_watch,
    record_absence,
    record_observation,
    record_revision,
    record_watch,
    register_cluster,
)
from tests.conftest import Cast, make_person

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
CLUSTERS, WORKLOADS, REVISIONS = "/api/v1/clusters", "/api/v1/workloads", "/api/v1/revisions"
START = datetime(2026, 11, 30, 4, tzinfo=UTC)
HEADLINE = {
    "roles": [{"role": "prefill", "desired": 4, "wanted": 4, "ready": 3}],
    "slices": 2,
    "revisions": ["aaaa1111"],
    "waiting_since": START.isoformat(),
}


def make_cluster(name: str = "east") -> Cluster:
    return register_cluster(name=name, context="rig", environment="staging", actor=command("test"))


def make_workload(cluster: Cluster, uid: str, **fields: Any) -> Workload:
    cluster.refresh_from_db()
    facts: dict[str, Any] = {
        "uid": uid,
        "namespace": "llm",
        "name": f"chat-{uid}",
        "state": "settled",
        "target_revision": "aaaa1111",
        "headline": HEADLINE,
        "summary": {"slices": [{"slice": "0"}]},
    }
    fence = cluster.watcher_fence or claim_watch(cluster_id=cluster.pk)
    found = record_observation(cluster_id=cluster.pk, fence=fence, seen=Observation(**(facts | fields)))
    assert found is not None
    return found


class TestClusters:
    BODY = {"name": "east", "context": "rig", "environment": "production"}

    def test_an_administrator_adds_one_and_everybody_with_a_grant_sees_it(
        self, users: Cast, api: Api
    ) -> None:
        made = api(users.admin).post(CLUSTERS, self.BODY, HTTP_IDEMPOTENCY_KEY="k")
        assert made.status_code == 201
        assert (made.data["writes"], made.data["age"], made.data["stale"]) == ("unknown", None, True)
        again = api(users.admin).post(CLUSTERS, self.BODY, HTTP_IDEMPOTENCY_KEY="k")
        assert (again.status_code, again.data["id"]) == (201, made.data["id"])
        assert Cluster.objects.count() == 1
        assert AuditEvent.objects.get(action="cluster.register").actor == "ada"
        assert [row["name"] for row in api(users.viewer).get(CLUSTERS).data["results"]] == ["east"]
        assert api(users.outsider).get(CLUSTERS).data["count"] == 0
        assert api(users.outsider).get(f"{CLUSTERS}/{made.data['id']}").status_code == 404
        assert api().get(CLUSTERS).status_code == 401

    def test_others_may_not_and_that_is_audited(self, users: Cast, api: Api) -> None:
        answer = api(users.operator).post(CLUSTERS, self.BODY, HTTP_IDEMPOTENCY_KEY="k")
        assert (answer.status_code, answer.data["code"]) == (403, "not-allowed")
        assert AuditEvent.objects.get(action="cluster.register").outcome == "refused"
        assert not Cluster.objects.exists()

    @pytest.mark.parametrize("wrong", [{"name": "a b"}, {"environment": "prod"}, {"context": ""}])
    def test_a_body_that_makes_no_sense(self, users: Cast, api: Api, wrong: dict[str, str]) -> None:
        answer = api(users.admin).post(CLUSTERS, self.BODY | wrong, HTTP_IDEMPOTENCY_KEY="k")
        assert answer.status_code == 422

    def test_a_taken_name(self, users: Cast, api: Api) -> None:
        make_cluster()
        answer = api(users.admin).post(CLUSTERS, self.BODY, HTTP_IDEMPOTENCY_KEY="k")
        assert (answer.status_code, answer.data["code"], answer.data["field"]) == (
            409,
            "cluster-exists",
            "name",
        )

    def test_recheck_makes_the_right_to_write_unknown(self, users: Cast, api: Api) -> None:
        cluster = make_cluster()
        Cluster.objects.update(writes="ours")
        path = f"{CLUSTERS}/{cluster.pk}/recheck"
        assert api(users.operator).post(path, HTTP_IDEMPOTENCY_KEY="k").status_code == 403
        answer = api(users.admin).post(path, HTTP_IDEMPOTENCY_KEY="k")
        assert (answer.status_code, answer.data["writes"]) == (200, "unknown")

    def test_the_age_is_that_of_the_watch(self, users: Cast, api: Api) -> None:
        cluster = make_cluster()
        record_watch(cluster_id=cluster.pk, fence=claim_watch(cluster_id=cluster.pk), current=True)
        fresh = api(users.viewer).get(f"{CLUSTERS}/{cluster.pk}").data
        assert 0 <= fresh["age"] < 5 and not fresh["stale"]
        Cluster.objects.update(observed_at=datetime.now(UTC) - timedelta(seconds=40))
        old = api(users.viewer).get(f"{CLUSTERS}/{cluster.pk}").data
        assert 39 < old["age"] < 45 and old["stale"]


class TestWorkloads:
    def test_a_list_has_headlines_and_one_has_everything(self, users: Cast, api: Api) -> None:
        workload = make_workload(make_cluster(), "u1")
        listed = api(users.viewer).get(WORKLOADS).data["results"][0]
        assert listed["roles"] == HEADLINE["roles"]
        assert (listed["revisions"], listed["slices"], listed["cluster"]) == (["aaaa1111"], 2, "east")
        assert listed["waiting_since"] == HEADLINE["waiting_since"]
        assert "summary" not in listed
        shown = api(users.viewer).get(f"{WORKLOADS}/{workload.pk}").data
        assert shown["summary"] == {"slices": [{"slice": "0"}]}

    def test_scope_is_the_namespace(self, users: Cast, api: Api) -> None:
        east, west = make_cluster("east"), make_cluster("west")
        mine = make_workload(east, "u1", namespace="mine")
        others = [make_workload(east, "u2", namespace="other"), make_workload(west, "u3", namespace="mine")]
        person = make_person("nora", Grant.Role.VIEWER, cluster="east", namespace="mine")
        seen = api(person).get(WORKLOADS).data
        assert [row["id"] for row in seen["results"]] == [mine.pk]
        assert api(person).get(f"{WORKLOADS}/{mine.pk}").status_code == 200
        for each in others:
            assert api(person).get(f"{WORKLOADS}/{each.pk}").status_code == 404

    def test_filters(self, users: Cast, api: Api) -> None:
        east, west = make_cluster("east"), make_cluster("west")
        make_workload(east, "u1", namespace="a", state="stuck")
        make_workload(east, "u2", namespace="b", state="active")
        make_workload(west, "u3", namespace="a", state="wedged")

        def found(**query: str) -> list[str]:
            return [row["uid"] for row in api(users.viewer).get(WORKLOADS, query).data["results"]]

        assert found() == ["u1", "u2", "u3"]
        assert found(cluster__name="east") == ["u1", "u2"]
        assert found(namespace="a") == ["u1", "u3"]
        assert found(state="stuck") == ["u1"]
        assert found(state__in="stuck,wedged") == ["u1", "u3"]
        assert found(name__contains="-u3") == ["u3"]

    def test_what_is_gone_is_left_out_of_lists_but_can_be_read(self, users: Cast, api: Api) -> None:
        cluster = make_cluster()
        kept, gone = make_workload(cluster, "u1"), make_workload(cluster, "u2")
        cluster.refresh_from_db()
        record_absence(cluster_id=cluster.pk, fence=cluster.watcher_fence, present=["u1"])
        listed = api(users.viewer).get(WORKLOADS).data["results"]
        assert [row["id"] for row in listed] == [kept.pk]
        listed = api(users.viewer).get(WORKLOADS, {"gone_at__isnull": "false"}).data["results"]
        assert [row["id"] for row in listed] == [gone.pk]
        assert api(users.viewer).get(f"{WORKLOADS}/{gone.pk}").data["gone_at"] is not None

    def test_nothing_can_be_written(self, users: Cast, api: Api) -> None:
        workload = make_workload(make_cluster(), "u1")
        client = api(users.admin)
        assert client.post(WORKLOADS, {}).status_code == 405
        for path in (f"{WORKLOADS}/{workload.pk}", f"{CLUSTERS}/{workload.cluster_id}"):
            assert client.delete(path).status_code == 405
            assert client.put(path, {}).status_code == 405
        assert client.patch(f"{WORKLOADS}/{workload.pk}", {}).status_code == 405


class TestRevisions:
    def test_a_list_says_what_one_can_go_back_to(self, users: Cast, api: Api) -> None:
        workload = make_workload(make_cluster(), "u1")
        roles = [{"name": "prefill"}, {"name": "decode"}]
        record_revision(
            workload=workload,
            label="aaaa1111",
            started_at=START,
            members=["a"],
            roles=roles,
            roles_digest="d",
        )
        later = START + timedelta(hours=1)
        record_revision(workload=workload, label="bbbb2222", started_at=later, members=["b"])
        listed = api(users.viewer).get(REVISIONS, {"workload": workload.pk}).data["results"]
        assert [(row["label"], row["recorded"]) for row in listed] == [
            ("bbbb2222", False),
            ("aaaa1111", True),
        ]
        assert all("roles" not in row for row in listed)
        shown = api(users.viewer).get(f"{REVISIONS}/{listed[1]['id']}").data
        assert shown["roles"] == roles
        assert api(users.viewer).get(REVISIONS, {"label": "bbbb2222"}).data["count"] == 1
        assert api(users.outsider).get(f"{REVISIONS}/{listed[1]['id']}").status_code == 404


@pytest.mark.parametrize("path", [CLUSTERS, WORKLOADS, REVISIONS])
def test_the_number_of_queries_does_not_grow_with_rows(users: Cast, api: Api, path: str) -> None:
    client = api(users.viewer)

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert client.get(path).status_code == 200
        return len(captured)

    def add(number: int) -> None:
        cluster = make_cluster(f"c{number}")
        for place in range(3):
            workload = make_workload(cluster, f"u{number}-{place}")
            record_revision(
                workload=workload, label="aaaa1111", started_at=START, members=[f"{number}-{place}"]
            )

    add(0)
    few = queries()
    for number in range(1, 6):
        add(number)
    assert queries() == few
