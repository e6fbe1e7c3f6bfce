"""The record over the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.access.models import Grant
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_refusal, seal_events
from tests.conftest import Cast, make_person
from tests.controlplane.audit.events import OLGA, write

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
AUDIT = "/api/v1/audit"


def test_sealed_and_unsealed_are_told_apart(users: Cast, api: Api) -> None:
    write(2)
    seal_events()
    write(1)
    newest, second, _ = api(users.viewer).get(AUDIT).data["results"]
    assert newest["seal"] is None
    assert second["seal"]["seq"] == 2 and len(second["seal"]["hash"]) == 64
    chain = api(users.viewer).get(f"{AUDIT}/chain").data
    assert (chain["seq"], chain["unsealed"]) == (2, 1)
    assert chain["unsealed_age_seconds"] >= 0


def test_filters(users: Cast, api: Api) -> None:
    write(3)
    write(1, action="vote.cast", target_kind="change-request")
    record_refusal(actor=OLGA, action="vote.cast", target_kind="x", target_id=1, code="requester")
    client = api(users.viewer)

    def count(query: str) -> int:
        return int(client.get(f"{AUDIT}?{query}").data["count"])

    assert count("actor=olga") == 5 and count("actor=ana") == 0
    assert count("action=vote.cast") == 2
    assert count("outcome=refused&code=requester") == 1
    assert count("target_kind=plan&target_id=2") == 1
    later = (database_now() + timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert count(f"at__gte={later}") == 0 and count(f"at__lt={later}") == 5
    wrong = client.get(f"{AUDIT}?outcome=maybe")
    assert (wrong.status_code, wrong.data["field"]) == (422, "outcome")


def test_who_may_read_only_part_of_the_world_sees_their_own(users: Cast, api: Api) -> None:
    write(2)
    local = make_person("loc", Grant.Role.VIEWER, cluster="lab")
    assert api(local).get(AUDIT).data["count"] == 0
    assert api(local).get(f"{AUDIT}/chain").status_code == 403
    assert api(users.outsider).get(AUDIT).data["count"] == 0
    assert api(users.operator).get(AUDIT).data["count"] == 2


def test_pages_and_queries_are_bounded(users: Cast, api: Api, django_assert_num_queries: Any) -> None:
    write(60)
    seal_events()
    client = api(users.viewer)
    # session, user, grants, count, events with seals
    with django_assert_num_queries(5):
        page = client.get(AUDIT).data
    assert (page["count"], len(page["results"])) == (60, 50)
    with django_assert_num_queries(5):
        assert len(client.get(f"{AUDIT}?page_size=60").data["results"]) == 60
    assert client.get(f"{AUDIT}?page=99").status_code == 404


def test_export_goes_on_where_it_stopped(users: Cast, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.access import audit_api

    monkeypatch.setattr(audit_api, "EXPORTED_AT_ONCE", 2)
    write(5)
    client, seen, after = api(users.viewer), [], 0
    while lines := client.get(f"{AUDIT}/export?after={after}&actor=olga").content.decode().splitlines():
        documents = [json.loads(line) for line in lines]
        assert len(documents) <= 2
        seen += [document["target_id"] for document in documents]
        after = documents[-1]["id"]
    assert seen == ["0", "1", "2", "3", "4"]
