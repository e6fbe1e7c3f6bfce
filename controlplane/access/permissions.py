"""Who may do what where: roles give actions, grants give roles a scope, token scopes take actions away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.db.models import Q, QuerySet

from controlplane.access.models import Grant, User
from controlplane.errors import NotAllowed, NotSignedIn

Action: TypeAlias = Literal[
    "read",
    "plan.edit",
    "plan.request",
    "operation.start",
    "operation.steer",
    "operation.adopt",
    "combination.manage",
    "restore.start",
    "vote.cast",
    "cluster.manage",
    "people.manage",
]
Scope: TypeAlias = Literal["read", "plan", "operate", "admin"]
Caller: TypeAlias = User | AnonymousUser
M = TypeVar("M", bound=models.Model)

ROLE_ACTIONS: Mapping[str, frozenset[Action]] = {
    Grant.Role.VIEWER: frozenset({"read"}),
    Grant.Role.OPERATOR: frozenset(
        {
            "read",
            "plan.edit",
            "plan.request",
            "operation.start",
            "operation.steer",
            "operation.adopt",
            "combination.manage",
            "restore.start",
        }
    ),
    Grant.Role.APPROVER: frozenset({"read", "vote.cast"}),
    Grant.Role.ADMIN: frozenset({"read", "operation.adopt", "cluster.manage", "people.manage"}),
}
# vote.cast is in no scope: a vote is a person's word. Nor is restore.start, which needs a recent sign-in.
SCOPE_ACTIONS: Mapping[Scope, frozenset[Action]] = {
    "read": frozenset({"read"}),
    "plan": frozenset({"read", "plan.edit", "plan.request"}),
    "operate": frozenset(
        {"read", "operation.start", "operation.steer", "operation.adopt", "combination.manage"}
    ),
    "admin": frozenset({"read", "cluster.manage", "people.manage"}),
}
SCOPES: tuple[Scope, ...] = tuple(SCOPE_ACTIONS)


def can(user: Caller, action: Action, *, cluster: str = "", namespace: str = "") -> bool:
    """Whether the caller may do this in this scope; an empty cluster asks for a grant that holds everywhere.

    Superusers may do everything but vote: that takes the role, like for everybody (DESIGN 9).
    """
    if not isinstance(user, User) or not user.is_active or not _token_allows(user, action):
        return False
    if user.is_superuser and action != "vote.cast":
        return True
    return any(_covers(grant, cluster, namespace) for grant in _grants_for(user, action))


def require(user: Caller, action: Action, *, cluster: str = "", namespace: str = "") -> None:
    """Raise NotSignedIn or NotAllowed unless `can`; the refusal names what would give the right."""
    if can(user, action, cluster=cluster, namespace=namespace):
        return
    if not isinstance(user, User):
        raise NotSignedIn("not-signed-in", "This needs an account.", next_action="Sign in, or send a token.")
    if not _token_allows(user, action):
        wanted = [scope for scope, actions in SCOPE_ACTIONS.items() if action in actions]
        raise NotAllowed(
            "token-scope",
            f"This token's scopes do not cover {action}.",
            next_action=f"Use a token with the scope {' or '.join(wanted)}."
            if wanted
            else "Sign in and do it in person.",
            action=action,
            scopes=wanted,
        )
    roles = sorted(role for role, actions in ROLE_ACTIONS.items() if action in actions)
    raise NotAllowed(
        "not-allowed",
        f"You may not do this ({action}) {_where(cluster, namespace)}.",
        next_action=f"Ask an administrator for the role {' or '.join(roles)} there.",
        action=action,
        roles=roles,
        cluster=cluster,
        namespace=namespace,
    )


def roles_in(user: User, *, cluster: str, namespace: str) -> frozenset[str]:
    """The roles that the user's grants give in this scope, superuser or not."""
    return frozenset(grant.role for grant in grants_of(user) if _covers(grant, cluster, namespace))


def allowed(
    queryset: QuerySet[M],
    user: Caller,
    action: Action = "read",
    *,
    cluster: str,
    namespace: str | None = None,
) -> QuerySet[M]:
    """The rows in whose scope the caller may do `action`; no extra query per row.

    `cluster` and `namespace` name the lookups that lead from a row to its cluster's name and its namespace
    (`workload__cluster__name`). Without a namespace lookup a namespaced grant shows the whole cluster's row.
    """
    if not isinstance(user, User) or not user.is_active or not _token_allows(user, action):
        return queryset.none()
    if user.is_superuser and action != "vote.cast":
        return queryset
    shown = Q(pk__in=[])
    for grant in _grants_for(user, action):
        if not grant.cluster:
            return queryset
        one = Q(**{cluster: grant.cluster})
        if grant.namespace and namespace:
            one &= Q(**{namespace: grant.namespace})
        shown |= one
    return queryset.filter(shown)


def grants_of(user: User) -> list[Grant]:
    """The user's grants, read once per user object (that is, once per request)."""
    known: list[Grant] | None = user.__dict__.get("_known_grants")
    if known is None:
        known = user.__dict__["_known_grants"] = list(user.grants.all())
    return known


def _grants_for(user: User, action: Action) -> list[Grant]:
    return [grant for grant in grants_of(user) if action in ROLE_ACTIONS[grant.role]]


def _token_allows(user: User, action: Action) -> bool:
    token = user.token
    return token is None or any(action in SCOPE_ACTIONS.get(scope, ()) for scope in token.scopes)


def _covers(grant: Grant, cluster: str, namespace: str) -> bool:
    if not grant.cluster:
        return True
    return grant.cluster == cluster and grant.namespace in ("", namespace)


def _where(cluster: str, namespace: str) -> str:
    if not cluster:
        return "everywhere"
    return f"in {cluster}/{namespace}" if namespace else f"in cluster {cluster}"
