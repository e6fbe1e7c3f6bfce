"""Who wrote a plan does not approve it, also where a token held the pen."""

from __future__ import annotations

import pytest

from controlplane.audit.actor import command
from controlplane.errors import NotAllowed
from controlplane.fleet.models import Cluster, Workload
from controlplane.operations.clock import database_now
from controlplane.upgrades.models import Plan
from controlplane.upgrades.services import acknowledge_hazard, draft_plan, edit_plan, excluded_voters
from policy.approval.eligibility import TokenOrigin
from tests.conftest import Cast

pytestmark = pytest.mark.django_db


@pytest.fixture
def workload() -> Workload:
    now = database_now()
    cluster = Cluster.objects.create(
        name="c", context="c", environment="production", created_at=now, updated_at=now
    )
    return Workload.objects.create(
        cluster=cluster,
        uid="u",
        namespace="n",
        name="s",
        state="settled",
        observed_at=now,
        observed_fence=1,
    )


def drafted(workload: Workload, users: Cast, origin: TokenOrigin | None) -> Plan:
    return draft_plan(
        workload_id=workload.pk,
        title="",
        reason="test",
        draft={"roles": {"prefill": {"image": "x"}}},
        options={},
        requester=users.operator,
        actor=command("test"),
        origin=origin,
    )


def test_the_person_behind_a_token_that_drafted_may_not_vote(workload: Workload, users: Cast) -> None:
    behind = TokenOrigin(owner=users.operator.username, responsible=users.approver.username)
    plan = drafted(workload, users, behind)
    # Asked for later by a person in a session: nothing of the token is in that request.
    assert users.approver.username in excluded_voters(plan, users.operator, None)
    assert users.second_approver.username not in excluded_voters(plan, users.operator, None)


def test_the_person_behind_a_token_that_edited_may_not_vote(workload: Workload, users: Cast) -> None:
    plan = drafted(workload, users, None)
    assert users.approver.username not in excluded_voters(plan, users.operator, None)
    edited = edit_plan(
        plan_id=plan.pk,
        version=plan.version,
        changes={"title": "other"},
        editor=users.operator,
        actor=command("test"),
        origin=TokenOrigin(owner=users.operator.username, responsible=users.approver.username),
    )
    assert users.approver.username in excluded_voters(edited, users.operator, None)


def test_a_requester_without_the_role_acknowledges_nothing(workload: Workload, users: Cast) -> None:
    plan = drafted(workload, users, None)
    plan.state, plan.hazards = Plan.State.READY, [{"id": "path-not-examined", "severity": "warn"}]
    plan.save()
    users.operator.grants.all().delete()
    users.operator.__dict__.pop("_known_grants", None)
    with pytest.raises(NotAllowed):
        acknowledge_hazard(
            plan_id=plan.pk,
            version=plan.version,
            hazard="path-not-examined",
            user=users.operator,
            actor=command("test"),
        )
