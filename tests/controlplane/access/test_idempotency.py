"""Idempotency-Key: sent again gives the first answer, and acts once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from rest_framework.test import APIClient

from controlplane.access.models import Grant, IdempotencyRecord
from controlplane.approvals.models import ChangeRequest
from controlplane.audit.models import AuditEvent
from tests.conftest import Cast, make_cast, make_person
from tests.controlplane.access.test_tokens import mint
from tests.controlplane.approvals.requests import ask

Api = Callable[..., APIClient]
GIVE = "/api/v1/people/otto/give-grant"
BODY = {"role": "viewer"}


def post(client: APIClient, body: Any = BODY, key: str = "one", path: str = GIVE) -> Any:
    return client.post(path, body, HTTP_IDEMPOTENCY_KEY=key)


@pytest.mark.django_db
def test_the_same_request_is_answered_from_memory(users: Cast, api: Api) -> None:
    client = api(users.admin)
    first = post(client)
    assert first.status_code == 200 and "Idempotent-Replay" not in first
    users.outsider.grants.all().delete()
    again = post(client)
    assert (again.status_code, again["Idempotent-Replay"]) == (200, "true")
    assert again.json() == first.json()
    assert not users.outsider.grants.exists(), "a replay does nothing"
    assert AuditEvent.objects.filter(action="access.give_grant").count() == 1


@pytest.mark.django_db
def test_a_replay_keeps_the_etag(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    client, path = api(users.approver), f"/api/v1/change-requests/{request.pk}/votes"
    body = {"choice": "approve", "digest": request.digest}
    first, again = post(client, body, path=path), post(client, body, path=path)
    assert first.status_code == 200 and first["ETag"] == again["ETag"]
    assert request.votes.count() == 1


@pytest.mark.django_db
def test_another_request_under_the_same_key_is_refused(users: Cast, api: Api) -> None:
    client = api(users.admin)
    post(client)
    for answer in (
        post(client, {"role": "operator"}),
        post(client, BODY, path="/api/v1/people/vic/give-grant"),
    ):
        assert (answer.status_code, answer.data["code"]) == (422, "idempotency-key-reused")
    _, secret = mint(users.admin, scopes=["admin"])
    assert post(api(token=secret)).data["code"] == "idempotency-key-reused", "another way in"
    assert post(client, {"role": "operator"}, key="two").status_code == 200


@pytest.mark.django_db
def test_keys_of_two_people_do_not_meet(users: Cast, api: Api) -> None:
    other = make_person("adi", Grant.Role.ADMIN)
    post(api(users.admin))
    assert "Idempotent-Replay" not in post(api(other))


@pytest.mark.django_db
def test_a_key_is_required_and_has_a_form(users: Cast, api: Api) -> None:
    client = api(users.admin)
    missing = client.post(GIVE, BODY)
    assert (missing.status_code, missing.data["code"]) == (428, "idempotency-key-missing")
    for key in ("x" * 201, "two words"):
        assert post(client, key=key).data["code"] == "idempotency-key-malformed"


@pytest.mark.django_db
def test_a_refusal_may_be_tried_again(users: Cast, api: Api) -> None:
    client = api(users.operator)
    assert post(client).status_code == 403
    Grant.objects.create(user=users.operator, role=Grant.Role.ADMIN)
    assert post(client).status_code == 200
    assert AuditEvent.objects.filter(action="access.give_grant", outcome="refused").count() == 1


@pytest.mark.django_db
def test_in_progress_then_abandoned(users: Cast, api: Api) -> None:
    client = api(users.admin)
    post(client)
    IdempotencyRecord.objects.update(status=None, body=None)
    answer = post(client)
    assert (answer.status_code, answer.data["code"]) == (409, "request-in-progress")
    IdempotencyRecord.objects.update(created_at=F("created_at") - timedelta(seconds=61))
    assert post(client).status_code == 200
    assert IdempotencyRecord.objects.get().status == 200


@pytest.mark.django_db
def test_answers_are_kept_for_a_day(users: Cast, api: Api) -> None:
    client = api(users.admin)
    post(client)
    IdempotencyRecord.objects.update(created_at=F("created_at") - timedelta(hours=25))
    assert "Idempotent-Replay" not in post(client)


@pytest.mark.django_db
def test_a_crash_leaves_neither_effect_nor_answer(
    users: Cast, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.access import api as room

    client = api(users.admin)
    client.raise_request_exception = False
    real = room.services.give_grant

    def fail_late(**given: Any) -> None:
        real(**given)
        raise ZeroDivisionError

    monkeypatch.setattr(room.services, "give_grant", fail_late)
    assert post(client).status_code == 500
    assert not users.outsider.grants.exists()
    monkeypatch.undo()
    assert post(client).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_twenty_at_once_act_once() -> None:
    users = make_cast()
    request = ask(users.operator, risk="high")
    path, body = (
        f"/api/v1/change-requests/{request.pk}/votes",
        {"choice": "approve", "digest": request.digest},
    )
    line = threading.Barrier(20)

    def send(_: int) -> tuple[int, bool]:
        client = APIClient()
        client.default_format = "json"
        client.force_login(users.approver)
        session = client.session
        session["signed_in_at"] = request.created_at.isoformat()
        session.save()
        try:
            line.wait(30)
            answer = client.post(path, body, HTTP_IDEMPOTENCY_KEY="one")
            return answer.status_code, answer.has_header("Idempotent-Replay")
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        results = Counter(pool.map(send, range(20)))
    assert results[(200, False)] == 1
    assert set(results) <= {(200, False), (200, True), (409, False)}
    assert ChangeRequest.objects.get().votes.count() == 1
