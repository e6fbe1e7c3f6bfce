"""Signing in, the session, CSRF, and the lock after failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from rest_framework.test import APIClient

from controlplane.access.models import SignInFailure
from controlplane.access.sign_in import FAILURES_ALLOWED
from controlplane.audit.models import AuditEvent
from tests.conftest import PASSWORD, Cast, make_person

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
SESSION = "/api/v1/session"


def sign_in(client: APIClient, username: str, password: str = PASSWORD, **headers: str) -> int:
    return client.post(SESSION, {"username": username, "password": password}, **headers).status_code


def test_in_and_out_with_csrf_enforced(users: Cast) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.default_format = "json"
    opened = client.post(SESSION, {"username": "olga", "password": PASSWORD})
    assert opened.status_code == 200
    assert opened.data["username"] == "olga" and opened.data["signed_in_at"]
    assert client.get("/api/v1/me").data["grants"][0]["role"] == "operator"
    assert AuditEvent.objects.get().actor == "olga"

    refused = client.delete(SESSION)
    assert (refused.status_code, refused.data["code"]) == (403, "csrf-failed")
    assert "X-CSRFToken" in refused.data["next_action"]
    token = client.get(SESSION).data["csrf_token"]
    assert client.delete(SESSION, HTTP_X_CSRFTOKEN=token).status_code == 204
    assert client.get("/api/v1/me").status_code == 401
    assert client.get(SESSION).data["username"] is None
    actions = list(AuditEvent.objects.order_by("pk").values_list("action", "outcome"))
    assert actions == [
        ("access.sign_in", "done"),
        ("access.sign_out", "refused"),
        ("access.sign_out", "done"),
    ]


def test_the_session_id_changes_when_somebody_signs_in(users: Cast, api: Api) -> None:
    client = api()
    client.get(SESSION)
    sign_in(client, "olga")
    first = client.cookies["sessionid"].value
    client.defaults["HTTP_X_CSRFTOKEN"] = client.get(SESSION).data["csrf_token"]
    sign_in(client, "ana")
    assert client.cookies["sessionid"].value != first


@pytest.mark.parametrize("who", ["nobody-here", "olga", "robot", "closed"])
def test_a_failure_does_not_say_why(users: Cast, api: Api, who: str) -> None:
    make_person("robot", kind="service")
    make_person("closed", is_active=False)
    password = "wrong" if who in ("olga", "nobody-here") else PASSWORD
    answer = api().post(SESSION, {"username": who, "password": password})
    assert (answer.status_code, answer.data["code"]) == (401, "sign-in-failed")
    assert answer.data["detail"] == "Name and password do not match an account that may sign in."
    event = AuditEvent.objects.get()
    assert (event.code, event.actor_kind, event.after) == ("sign-in-failed", "nobody", {"username": who})
    assert event.source_ip == "127.0.0.1"


def test_failures_lock_the_name_for_that_address_only(users: Cast, api: Api) -> None:
    for _ in range(FAILURES_ALLOWED):
        assert sign_in(api(), "olga", "wrong") == 401
    assert sign_in(api(), "olga", "wrong") == 429
    assert sign_in(api(), "olga") == 429, "the right password does not help"
    assert sign_in(api(), "ana") == 200, "another name"
    assert sign_in(api(), "olga", REMOTE_ADDR="10.1.1.1") == 200, "from elsewhere"
    SignInFailure.objects.update(at=F("at") - timedelta(minutes=16))
    assert sign_in(api(), "olga") == 200, "a quarter of an hour later"
    assert not SignInFailure.objects.filter(address="127.0.0.1").exists()


def test_success_forgets_the_failures(users: Cast, api: Api) -> None:
    for _ in range(2 * FAILURES_ALLOWED):
        assert sign_in(api(), "olga", "wrong") == 401
        assert sign_in(api(), "olga") == 200


def test_a_form_from_another_site_cannot_sign_anybody_in(users: Cast) -> None:
    client = APIClient()
    answer = client.post(
        SESSION, f"username=olga&password={PASSWORD}", content_type="application/x-www-form-urlencoded"
    )
    assert answer.status_code == 415
