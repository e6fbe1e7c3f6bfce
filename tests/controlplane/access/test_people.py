"""Accounts and grants, by administrators and by the command line."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from controlplane.access.models import Grant, User
from controlplane.access.permissions import can
from controlplane.access.tokens import find_token
from controlplane.audit.models import AuditEvent
from tests.conftest import PASSWORD, Cast, make_person

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
PEOPLE = "/api/v1/people"


def post(client: APIClient, path: str, body: Any = None, key: str = "k") -> Any:
    return client.post(path, body, HTTP_IDEMPOTENCY_KEY=key)


def test_an_administrator_opens_grants_and_closes(users: Cast, api: Api) -> None:
    client = api(users.admin)
    body = {"username": "nia", "password": "a-long-enough-one"}
    made = client.post(PEOPLE, body)
    assert (made.status_code, made.data["grants"]) == (201, [])
    grant = {"role": "operator", "cluster": "lab", "namespace": "serving"}
    given = post(client, f"{PEOPLE}/nia/give-grant", grant)
    nia = User.objects.get(username="nia")
    assert can(nia, "operation.start", cluster="lab", namespace="serving")
    assert post(client, f"{PEOPLE}/nia/give-grant", grant, "k2").data == given.data, "twice changes nothing"
    taken = post(client, f"{PEOPLE}/nia/take-grant", {"grant": given.data["grants"][0]["id"]}, "k3")
    assert taken.data["grants"] == []
    assert post(client, f"{PEOPLE}/nia/close", None, "k4").data["active"] is False
    assert "a-long-enough-one" not in str(list(AuditEvent.objects.values()))
    assert list(AuditEvent.objects.order_by("pk").values_list("action", flat=True)) == [
        "access.create_person",
        "access.give_grant",
        "access.take_grant",
        "access.close_account",
    ]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"username": "olga", "password": "a-long-enough-one"}, "name-taken", "username"),
        ({"username": "nia", "password": "short"}, "account-not-valid", "password"),
        ({"username": "ni a", "password": "a-long-enough-one"}, "account-not-valid", "username"),
        ({"username": "nia"}, "password-missing", "password"),
        (
            {"username": "r2", "kind": "service", "password": "a-long-enough-one"},
            "password-not-used",
            "password",
        ),
        ({"password": "a-long-enough-one"}, "invalid-input", "username"),
    ],
)
def test_accounts_that_are_refused(users: Cast, api: Api, body: Any, code: str, field: str) -> None:
    answer = api(users.admin).post(PEOPLE, body)
    assert (answer.status_code, answer.data["code"], answer.data["field"]) == (422, code, field)
    assert AuditEvent.objects.get().outcome == "refused"


def test_an_administrator_of_one_cluster_gives_rights_there_only(users: Cast, api: Api) -> None:
    local = make_person("loc", Grant.Role.ADMIN, cluster="lab")
    client = api(local)
    here, everywhere = {"role": "viewer", "cluster": "lab"}, {"role": "admin"}
    assert post(client, f"{PEOPLE}/otto/give-grant", here).status_code == 200
    refused = post(client, f"{PEOPLE}/otto/give-grant", everywhere, "k2")
    assert (refused.status_code, refused.data["code"]) == (403, "not-allowed")
    assert client.get(PEOPLE).status_code == 403


def test_nobody_else_manages(users: Cast, api: Api) -> None:
    for user in (users.operator, users.approver, users.viewer):
        assert api(user).get(PEOPLE).status_code == 403
        answer = post(api(user), f"{PEOPLE}/{user.username}/give-grant", {"role": "admin"})
        assert answer.status_code == 403
    assert AuditEvent.objects.filter(outcome="refused", action="access.give_grant").count() == 3


def test_rules_of_grants(users: Cast, api: Api) -> None:
    make_person("robot", kind="service")
    client = api(users.admin)
    vote = post(client, f"{PEOPLE}/robot/give-grant", {"role": "approver"})
    assert vote.data["code"] == "service-cannot-vote"
    lost = post(client, f"{PEOPLE}/otto/give-grant", {"role": "viewer", "namespace": "a"}, "k2")
    assert lost.data["code"] == "cluster-missing"
    assert post(client, f"{PEOPLE}/ghost/give-grant", {"role": "viewer"}, "k3").status_code == 404
    assert post(client, f"{PEOPLE}/otto/take-grant", {"grant": 999}, "k4").status_code == 404
    assert post(client, f"{PEOPLE}/ada/close", None, "k5").data["code"] == "own-account"


def test_the_list_takes_a_constant_number_of_queries(
    users: Cast, api: Api, django_assert_num_queries: Any
) -> None:
    client = api(users.admin)
    # session, user, grants of the caller, count, people, grants
    with django_assert_num_queries(6):
        client.get(PEOPLE)
    for number in range(20):
        make_person(f"p{number}", Grant.Role.VIEWER, Grant.Role.OPERATOR)
    with django_assert_num_queries(6):
        assert client.get(PEOPLE).data["count"] == 26


def test_the_command_line_opens_the_first_account(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_NEW_PASSWORD", PASSWORD)
    out = StringIO()
    call_command("create_person", "root", superuser=True, role=["admin"], stdout=out)
    root = User.objects.get(username="root")
    assert root.is_superuser and root.check_password(PASSWORD) and can(root, "people.manage")
    out = StringIO()
    call_command("create_person", "robot", service=True, responsible="root", token="plan,operate", stdout=out)
    token = find_token(out.getvalue().strip())
    assert token is not None and token.scopes == ["plan", "operate"] and token.responsible == root
    with pytest.raises(CommandError, match="already"):
        call_command("create_person", "root", stdout=StringIO())
    with pytest.raises(CommandError, match="Scopes are"):
        call_command("create_person", "r2", service=True, responsible="root", token="vote", stdout=StringIO())
    assert not User.objects.filter(username="r2").exists(), "all or nothing"
