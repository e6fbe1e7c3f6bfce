"""Every error is a problem document, and every refused write is on record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import OperationalError
from django.http import Http404
from django.test import RequestFactory
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.test import APIClient

from controlplane.access.etags import check_version, etag_of, expected_version
from controlplane.access.problems import render
from controlplane.audit.models import AuditEvent
from controlplane.errors import BadInput, LockstepError, Refused
from tests.conftest import Cast
from tests.controlplane.approvals.requests import ask

Api = Callable[..., APIClient]
MEMBERS = {"type", "title", "status", "detail", "code", "request_id"}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Refused("target-taken", "Taken.", next_action="Wait.", by="op-1"), 409, "target-taken"),
        (BadInput("bad", "Bad.", field="a.b"), 422, "bad"),
        (Http404(), 404, "not-found"),
        (exceptions.ParseError(), 400, "malformed"),
        (exceptions.NotAuthenticated(), 401, "not-signed-in"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method-not-allowed"),
        (exceptions.UnsupportedMediaType("text/plain"), 415, "unsupported-media-type"),
        (exceptions.ValidationError({"roles": [{"name": ["Missing."]}]}), 422, "invalid-input"),
        (OperationalError("gone"), 503, "database-unavailable"),
    ],
)
def test_every_error_has_the_members(error: Exception, status: int, code: str) -> None:
    response = render(error, {})
    assert response is not None
    assert response.data.keys() >= MEMBERS
    assert (response.status_code, response.data["status"], response.data["code"]) == (status, status, code)
    assert response.content_type == "application/problem+json"


def test_fields_are_dotted_paths() -> None:
    error = exceptions.ValidationError(
        {"roles": [{}, {"name": ["Missing."], "surge": ["Low.", "Odd."]}], "non_field_errors": ["Both."]}
    )
    response = render(error, {})
    assert response is not None
    found = [(entry["field"], entry["detail"]) for entry in response.data["fields"]]
    assert found == [
        ("roles[1].name", "Missing."),
        ("roles[1].surge", "Low."),
        ("roles[1].surge", "Odd."),
        ("", "Both."),
    ]
    assert response.data["field"] == "roles[1].name"


def test_what_nobody_foresaw_is_left_to_django() -> None:
    assert render(ZeroDivisionError(), {}) is None


@pytest.mark.django_db
def test_answers_over_http(users: Cast, api: Api) -> None:
    client = api(users.operator)
    malformed = client.post("/api/v1/tokens", "{", content_type="application/json")
    assert (malformed.status_code, malformed.data["code"]) == (400, "malformed")
    missing = client.get("/api/v1/nowhere")
    assert (missing.status_code, missing["Content-Type"]) == (404, "application/problem+json")
    assert missing.json()["code"] == "not-found"
    assert client.get("/api/v1/tokens", HTTP_ACCEPT="text/html").status_code == 406
    nobody = api().get("/api/v1/me")
    assert (nobody.status_code, nobody.data["code"]) == (401, "not-signed-in")
    assert nobody["Content-Type"] == "application/problem+json"
    assert nobody["WWW-Authenticate"].startswith("Bearer")
    assert client.put("/api/v1/me", {}).data["code"] == "method-not-allowed"


@pytest.mark.django_db
def test_a_server_error_says_nothing_about_the_inside(
    users: Cast, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.access import session_api

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret of the inside")

    monkeypatch.setattr(session_api, "grants_of", fail)
    client = api(users.operator)
    client.raise_request_exception = False
    answer = client.get("/api/v1/me")
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert answer.json().keys() >= MEMBERS and "inside" not in answer.json()["detail"]


@pytest.mark.django_db
def test_refused_writes_are_recorded_with_the_request_id(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    body = {"choice": "approve", "digest": request.digest}
    path = f"/api/v1/change-requests/{request.pk}/votes"
    answer = api(users.operator).post(path, body, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status_code, answer.data["code"]) == (403, "requester")
    event = AuditEvent.objects.get(outcome="refused")
    assert (event.action, event.code, event.actor) == ("vote.cast", "requester", "olga")
    assert (event.target_kind, event.target_id) == ("change-request", str(request.pk))
    assert event.request_id == answer.data["request_id"] != ""
    assert event.source_ip == "127.0.0.1"


@pytest.mark.django_db
def test_reads_and_strangers_fill_no_table(users: Cast, api: Api) -> None:
    api(users.operator).get("/api/v1/people")
    api().post("/api/v1/tokens", {})
    api(token="lsk_x_y").post("/api/v1/tokens", {})
    assert not AuditEvent.objects.exists()


def if_match(value: str | None) -> Request:
    headers = {} if value is None else {"HTTP_IF_MATCH": value}
    return Request(RequestFactory().post("/", **headers))  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "version"), [('"7"', 7), ('W/"12"', 12)])
def test_if_match_names_a_version(value: str, version: int) -> None:
    assert expected_version(if_match(value)) == version
    assert expected_version(if_match(etag_of(version))) == version


@pytest.mark.parametrize(
    ("value", "code", "status"),
    [(None, "if-match-missing", 428), ("*", "if-match-malformed", 422), ('"x"', "if-match-malformed", 422)],
)
def test_if_match_is_required_and_exact(value: str | None, code: str, status: int) -> None:
    with pytest.raises(LockstepError) as refused:
        expected_version(if_match(value))
    assert (refused.value.code, refused.value.status) == (code, status)


def test_a_stale_edit_is_refused() -> None:
    check_version(expected=3, actual=3)
    with pytest.raises(LockstepError) as refused:
        check_version(expected=3, actual=4)
    assert refused.value.status == 412
