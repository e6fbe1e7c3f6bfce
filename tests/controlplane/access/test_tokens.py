"""Tokens: shown once, hashed, scoped, ending."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.access.models import ApiToken, User
from controlplane.access.tokens import find_token, mint_token, revoke_token
from controlplane.audit.clock import database_now
from controlplane.audit.models import AuditEvent
from controlplane.errors import LockstepError
from tests.conftest import Cast, make_person
from tests.controlplane.approvals.requests import SOMEBODY

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]


def mint(owner: User, **changed: Any) -> tuple[ApiToken, str]:
    given: dict[str, Any] = {
        "minted_by": owner,
        "responsible": owner,
        "name": "ci",
        "scopes": ["read"],
        "expires_at": database_now() + timedelta(days=30),
        "actor": SOMEBODY,
    }
    return mint_token(owner=owner, **given | changed)


def test_the_secret_is_nowhere_but_in_the_answer(users: Cast, api: Api) -> None:
    client = api(users.operator)
    expires = (database_now() + timedelta(days=9)).isoformat()
    body = {"name": "ci", "scopes": ["plan", "read"], "expires_at": expires}
    made = client.post("/api/v1/tokens", body)
    assert made.status_code == 201
    secret = made.data["secret"]
    assert made.data["scopes"] == ["read", "plan"]
    random_part = secret.split("_", 2)[2]
    stored = str(list(ApiToken.objects.values())) + str(list(AuditEvent.objects.values()))
    assert random_part not in stored
    assert "secret" not in client.get("/api/v1/tokens").data["results"][0]
    me = api(token=secret).get("/api/v1/me")
    assert (me.data["username"], me.data["token"]["name"]) == ("olga", "ci")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"expires_at": timedelta(days=367)}, "expiry-out-of-range"),
        ({"expires_at": timedelta(seconds=-1)}, "expiry-out-of-range"),
        ({"scopes": []}, "scope-missing"),
        ({"scopes": ["vote"]}, "scope-unknown"),
        ({"name": "  "}, "name-missing"),
    ],
)
def test_what_a_token_may_be(users: Cast, changed: dict[str, Any], code: str) -> None:
    if isinstance(changed.get("expires_at"), timedelta):
        changed = {"expires_at": database_now() + changed["expires_at"]}
    with pytest.raises(LockstepError, match=code):
        mint(users.operator, **changed)


def test_a_person_answers_for_every_token(users: Cast) -> None:
    robot = make_person("robot", kind="service")
    with pytest.raises(LockstepError, match="responsible-not-a-person"):
        mint(robot, minted_by=users.admin, responsible=robot)
    with pytest.raises(LockstepError, match="not-allowed"):
        mint(robot, minted_by=users.operator, responsible=users.operator)
    token, _ = mint(robot, minted_by=users.admin, responsible=users.operator)
    assert token.responsible == users.operator


def test_a_token_makes_no_tokens(users: Cast, api: Api) -> None:
    _, secret = mint(users.admin, scopes=["admin"])
    expires = (database_now() + timedelta(days=1)).isoformat()
    answer = api(token=secret).post(
        "/api/v1/tokens", {"name": "x", "scopes": ["read"], "expires_at": expires}
    )
    assert (answer.status_code, answer.data["code"]) == (403, "token-cannot-mint")
    event = AuditEvent.objects.get(outcome="refused")
    assert (event.actor, event.on_behalf_of, event.action) == ("ada/ci", "ada", "access.mint_token")


@pytest.mark.parametrize("end", ["expire", "revoke", "owner", "responsible"])
def test_an_ended_token_is_nobody(users: Cast, api: Api, end: str) -> None:
    robot = make_person("robot", kind="service")
    token, secret = mint(robot, minted_by=users.admin, responsible=users.operator)
    assert api(token=secret).get("/api/v1/me").status_code == 200
    if end == "expire":
        ApiToken.objects.update(expires_at=database_now())
    elif end == "revoke":
        revoke_token(token_id=token.pk, by=users.operator, actor=SOMEBODY)
    else:
        User.objects.filter(username={"owner": "robot", "responsible": "olga"}[end]).update(is_active=False)
    answer = api(token=secret).get("/api/v1/me")
    assert (answer.status_code, answer.data["code"]) == (401, "token-invalid")
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_forged_tokens_find_nothing(users: Cast) -> None:
    token, secret = mint(users.operator)
    other, other_secret = mint(users.viewer)
    mixed = f"lsk_{token.prefix}_{other_secret.split('_', 2)[2]}"
    for forged in (mixed, secret[:-1], secret + "x", f"lsk_{token.prefix}_", "lsk", "", "lsk_a_b", "é" * 30):
        assert find_token(forged) is None
    assert find_token(other_secret) == other


def test_who_may_revoke(users: Cast, api: Api) -> None:
    token, _ = mint(users.operator)
    path, key = f"/api/v1/tokens/{token.pk}/revoke", {"HTTP_IDEMPOTENCY_KEY": "k"}
    assert api(users.viewer).post(path, **key).status_code == 403
    assert api(users.admin).post(path, **key).data["revoked_at"] is not None
    assert api(users.operator).post("/api/v1/tokens/999/revoke", **key).status_code == 404
    assert AuditEvent.objects.filter(action="access.revoke_token").count() == 3


def test_use_is_noted_at_most_once_a_minute(users: Cast, django_assert_num_queries: Any) -> None:
    token, secret = mint(users.operator)
    find_token(secret)
    token.refresh_from_db()
    first = token.last_used_at
    assert first is not None
    with django_assert_num_queries(2):
        find_token(secret)
    token.refresh_from_db()
    assert token.last_used_at == first
