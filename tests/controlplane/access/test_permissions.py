"""Who may do what where."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from controlplane.access.models import ApiToken, Grant, User
from controlplane.access.permissions import ROLE_ACTIONS, SCOPE_ACTIONS, SCOPES, allowed, can, require
from controlplane.approvals.models import ChangeRequest
from controlplane.errors import NotAllowed, NotSignedIn
from tests.conftest import Cast, make_person
from tests.controlplane.approvals.requests import ask

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("cluster", "namespace", "asked", "answer"),
    [
        ("", "", ("lab", "a"), True),
        ("", "", ("", ""), True),
        ("lab", "", ("lab", "a"), True),
        ("lab", "", ("lab", ""), True),
        ("lab", "", ("other", "a"), False),
        ("lab", "", ("", ""), False),
        ("lab", "a", ("lab", "a"), True),
        ("lab", "a", ("lab", "b"), False),
        ("lab", "a", ("lab", ""), False),
    ],
)
def test_a_grant_reaches_as_far_as_its_scope(
    cluster: str, namespace: str, asked: tuple[str, str], answer: bool
) -> None:
    user = make_person("sam", Grant.Role.OPERATOR, cluster=cluster, namespace=namespace)
    assert can(user, "operation.start", cluster=asked[0], namespace=asked[1]) is answer


def test_roles_give_their_actions_and_no_others(users: Cast) -> None:
    every = {action for actions in ROLE_ACTIONS.values() for action in actions}
    cast = {
        "viewer": users.viewer,
        "operator": users.operator,
        "approver": users.approver,
        "admin": users.admin,
    }
    for role, user in cast.items():
        assert {action for action in every if can(user, action)} == ROLE_ACTIONS[role]
    assert not any(can(users.outsider, action) for action in every)
    assert not any(can(AnonymousUser(), action) for action in every)


def test_superusers_manage_but_do_not_vote(users: Cast) -> None:
    root = make_person("root", is_superuser=True)
    assert can(root, "people.manage") and can(root, "operation.start", cluster="lab")
    assert not can(root, "vote.cast", cluster="lab")


def test_a_closed_account_may_nothing(users: Cast) -> None:
    users.admin.is_active = False
    assert not can(users.admin, "read")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_takes_rights_away_and_never_adds_any(users: Cast, scope: str) -> None:
    for user in (users.operator, users.approver, users.admin):
        before = {action for actions in ROLE_ACTIONS.values() for action in actions if can(user, action)}
        user.token = ApiToken(scopes=[scope])
        after = {action for actions in ROLE_ACTIONS.values() for action in actions if can(user, action)}
        assert after == before & SCOPE_ACTIONS[scope]  # type: ignore[index]
        assert "vote.cast" not in after


def test_refusals_name_what_would_give_the_right(users: Cast) -> None:
    with pytest.raises(NotAllowed) as refused:
        require(users.viewer, "operation.start", cluster="lab", namespace="serving")
    assert "role operator" in refused.value.next_action
    assert refused.value.facts["cluster"] == "lab"
    users.operator.token = ApiToken(scopes=["read"])
    with pytest.raises(NotAllowed) as refused:
        require(users.operator, "operation.start")
    assert (refused.value.code, refused.value.facts["scopes"]) == ("token-scope", ["operate"])
    with pytest.raises(NotSignedIn):
        require(AnonymousUser(), "read")


def test_lists_show_what_is_in_scope(users: Cast) -> None:
    places = [("lab", "a"), ("lab", "b"), ("prod", "a")]
    for number, (cluster, namespace) in enumerate(places):
        ask(users.operator, subject_id=number, cluster=cluster, namespace=namespace)

    def shown(user: User) -> set[tuple[str, str]]:
        rows = allowed(ChangeRequest.objects.all(), user, cluster="cluster", namespace="namespace")
        return set(rows.values_list("cluster", "namespace"))

    assert shown(users.viewer) == set(places)
    assert shown(make_person("lab", Grant.Role.VIEWER, cluster="lab")) == set(places[:2])
    assert shown(make_person("lab-a", Grant.Role.VIEWER, cluster="lab", namespace="a")) == {places[0]}
    assert shown(users.outsider) == set()
