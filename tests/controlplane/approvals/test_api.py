"""Change requests over the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.access.models import Grant
from controlplane.audit.models import AuditEvent
from tests.conftest import Cast, make_person
from tests.controlplane.access.test_tokens import mint
from tests.controlplane.approvals.requests import ask, vote

pytestmark = pytest.mark.django_db
Api = Callable[..., APIClient]
REQUESTS = "/api/v1/change-requests"


def test_one_request_shows_what_a_voter_needs(users: Cast, api: Api) -> None:
    request = ask(users.operator, risk="high", excluded={"ben": "editor"})
    vote(request, users.approver)
    shown = api(users.second_approver).get(f"{REQUESTS}/{request.pk}")
    assert shown["ETag"] == f'"{shown.data["version"]}"'
    assert shown.data["counted"] == ["ana"]
    assert shown.data["missing"] == [{"role": "approver", "group": None}]
    assert shown.data["may_vote"] == ["ana"], (
        "the requester, editors and people without the role are not in it"
    )
    assert [reason["code"] for reason in shown.data["why_not_you"]] == ["editor"]
    assert [row["voter"] for row in shown.data["votes"]] == ["ana"]
    assert shown.data["evidence"] == {"rows": [[1, 0], [1, 1]]}
    assert shown.data["expires_at"]


def test_a_signed_in_approver_votes(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    body = {"choice": "approve", "digest": request.digest, "comment": "looks right"}
    answer = api(users.approver).post(f"{REQUESTS}/{request.pk}/votes", body, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status_code, answer.data["state"]) == (200, "approved")
    assert answer.data["state_reason"] == "Approved by ana."


def test_a_token_never_votes(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    _, secret = mint(users.approver, scopes=["read", "plan", "operate"])
    body = {"choice": "approve", "digest": request.digest}
    answer = api(token=secret).post(f"{REQUESTS}/{request.pk}/votes", body, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status_code, answer.data["code"]) == (403, "token-cannot-vote")
    event = AuditEvent.objects.get(outcome="refused")
    assert (event.action, event.actor, event.actor_kind) == ("vote.cast", "ana/ci", "token")
    assert not request.votes.exists()


def test_a_vote_on_what_was_seen_before_is_refused(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    body = {"choice": "approve", "digest": "sha256:" + "0" * 64}
    answer = api(users.approver).post(f"{REQUESTS}/{request.pk}/votes", body, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status_code, answer.data["code"]) == (409, "digest-mismatch")
    assert answer.data["facts"]["present"] == request.digest


def test_a_session_that_is_not_recent_does_not_carry_high_risk(users: Cast, api: Api) -> None:
    request = ask(users.operator, risk="high")
    client = api(users.approver)
    session = client.session
    session["signed_in_at"] = "2020-01-01T00:00:00+00:00"
    session.save()
    body = {"choice": "approve", "digest": request.digest}
    answer = client.post(f"{REQUESTS}/{request.pk}/votes", body, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status_code, answer.data["code"]) == (403, "sign-in-too-old")


def test_what_is_not_in_scope_does_not_exist(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    stranger = make_person("eve", Grant.Role.APPROVER, cluster="other")
    assert api(stranger).get(REQUESTS).data["count"] == 0
    assert api(stranger).get(f"{REQUESTS}/{request.pk}").status_code == 404
    body = {"choice": "approve", "digest": request.digest}
    answer = api(stranger).post(f"{REQUESTS}/{request.pk}/votes", body, HTTP_IDEMPOTENCY_KEY="k")
    assert answer.status_code == 404


def test_the_requester_takes_it_back(users: Cast, api: Api) -> None:
    request = ask(users.operator)
    path = f"{REQUESTS}/{request.pk}/withdraw"
    assert api(users.approver).post(path, {}, HTTP_IDEMPOTENCY_KEY="k").status_code == 403
    answer = api(users.operator).post(path, {"reason": "not today"}, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.data["state"], answer.data["state_reason"]) == ("withdrawn", "not today")


def test_lists_filter_and_take_a_constant_number_of_queries(
    users: Cast, api: Api, django_assert_num_queries: Any
) -> None:
    def fill(start: int, number: int) -> None:
        for subject in range(start, start + number):
            request = ask(users.operator, subject_id=subject, risk="high", cluster=f"c{subject % 2}")
            vote(request, users.approver)
            vote(request, users.second_approver)

    fill(0, 2)
    client = api(users.viewer)
    # session, user, caller's grants, time, count, requests, votes, grants and groups of voters
    with django_assert_num_queries(9):
        client.get(REQUESTS)
    fill(2, 12)
    with django_assert_num_queries(9):
        listed = client.get(REQUESTS).data
    assert listed["count"] == 14
    assert listed["results"][0]["counted"] == ["ana", "ben"]
    assert client.get(f"{REQUESTS}?cluster=c1&state=approved").data["count"] == 7
    assert client.get(f"{REQUESTS}?state=open").data["count"] == 0
