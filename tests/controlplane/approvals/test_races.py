"""Fifty people and an editor at once, on a real PostgreSQL: exactly one outcome."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from controlplane.access.models import Grant, User
from controlplane.approvals.models import ChangeRequest
from controlplane.approvals.services import approved_request, mark_stale, withdraw_request
from controlplane.audit.models import AuditEvent
from controlplane.errors import LockstepError
from tests.conftest import make_person
from tests.controlplane.approvals.requests import DIGEST, SOMEBODY, ask, vote

PARALLEL = 50
ENDS = ["request.approved", "request.rejected", "request.stale", "request.withdrawn", "request.expired"]


def at_once(actions: list[Callable[[], object]]) -> list[str]:
    """Run all actions from the same starting line; the code of each refusal, `done` for the others."""
    line = threading.Barrier(len(actions))

    def act(action: Callable[[], object]) -> str:
        try:
            line.wait(30)
            action()
        except LockstepError as error:
            return error.code
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(act, actions))


def endings(request: ChangeRequest) -> list[str]:
    rows = AuditEvent.objects.filter(target_kind="change-request", target_id=str(request.pk), action__in=ENDS)
    return list(rows.order_by("pk").values_list("action", flat=True))


@pytest.fixture
def crowd(transactional_db: None) -> list[User]:
    return [make_person(f"voter{number:02}", Grant.Role.APPROVER) for number in range(PARALLEL)]


def test_of_fifty_approvals_exactly_the_quorum_is_taken(crowd: list[User]) -> None:
    request = ask(make_person("olga", Grant.Role.OPERATOR), risk="high")
    results = Counter(at_once([lambda who=who: vote(request, who) for who in crowd]))  # type: ignore[misc]
    assert results == {"done": 2, "request-not-open": PARALLEL - 2}
    assert endings(request) == ["request.approved"]


@pytest.mark.parametrize("attempt", range(3))
def test_votes_rejects_edits_and_a_withdrawal_lead_to_one_end(crowd: list[User], attempt: int) -> None:
    olga = make_person("olga", Grant.Role.OPERATOR)
    request = ask(olga, risk="high")
    actions: list[Callable[[], object]] = []
    for number, who in enumerate(crowd):
        if number % 10 == 3:
            actions.append(
                lambda: mark_stale(
                    subject_kind="upgrades.plan", subject_id=7, reason="edited", actor=SOMEBODY
                )
            )
        elif number % 10 == 6:
            actions.append(
                lambda: withdraw_request(request_id=request.pk, by=olga, reason="", actor=SOMEBODY)
            )
        else:
            choice = "reject" if number % 3 == 0 else "approve"
            actions.append(lambda who=who, choice=choice: vote(request, who, choice))  # type: ignore[misc]
    at_once(actions)
    request.refresh_from_db()
    ended = endings(request)
    # An approval may still be made stale or withdrawn by whoever came after it; every other end is final.
    assert len(ended) == 1 or (len(ended) == 2 and ended[0] == "request.approved")
    assert ended[-1] == f"request.{request.state}"
    accepted = list(request.votes.order_by("pk").values_list("choice", flat=True))
    assert accepted.count("reject") <= 1
    assert accepted.count("approve") <= 2
    allows = approved_request(subject_kind="upgrades.plan", subject_id=7, digest=DIGEST)
    assert (allows is not None) == (request.state == "approved")


def test_one_person_clicking_ten_times_has_one_vote(crowd: list[User]) -> None:
    request = ask(make_person("olga", Grant.Role.OPERATOR), risk="high")
    results = Counter(at_once([lambda: vote(request, crowd[0]) for _ in range(10)]))
    assert results == {"done": 1, "already-voted": 9}
