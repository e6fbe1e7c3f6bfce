"""People and their grants."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from controlplane.access.models import ApiToken, Grant, User
from controlplane.access.permissions import require
from controlplane.audit.actor import Actor
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, NotFound, Refused


def create_person(
    *,
    username: str,
    password: str | None,
    kind: str = User.Kind.PERSON,
    email: str = "",
    superuser: bool = False,
    by: User | None,
    actor: Actor,
) -> User:
    """Open an account without any grant. `by` needs people.manage everywhere; None is the command line.

    A service account has no password: it only holds tokens. Raises BadInput for a name that is taken or
    malformed, or a password that is too weak.
    """
    if by is not None:
        require(by, "people.manage")
    user = User(username=username, email=email, kind=kind, is_superuser=superuser)
    _refuse_account(user, password)
    if password is None:
        user.set_unusable_password()
    else:
        user.set_password(password)
    try:
        with transaction.atomic():
            user.save()
            after = {"kind": kind, "email": email, "superuser": superuser}
            record_event(
                actor=actor,
                action="access.create_person",
                target_kind="person",
                target_id=username,
                after=after,
            )
    except IntegrityError as error:
        raise BadInput("name-taken", f"There is an account {username} already.", field="username") from error
    return user


def give_grant(
    *, username: str, role: str, cluster: str = "", namespace: str = "", by: User | None, actor: Actor
) -> Grant:
    """Give a role in a scope; giving it twice changes nothing. `by` needs people.manage in that scope."""
    if namespace and not cluster:
        raise BadInput("cluster-missing", "A namespace needs its cluster.", field="cluster")
    if by is not None:
        require(by, "people.manage", cluster=cluster, namespace=namespace)
    with transaction.atomic():
        user = _locked(username)
        if user.kind == User.Kind.SERVICE and role == Grant.Role.APPROVER:
            raise BadInput("service-cannot-vote", "Service accounts never vote.", field="role")
        grant, made = Grant.objects.get_or_create(user=user, role=role, cluster=cluster, namespace=namespace)
        if made:
            _record_grant("access.give_grant", grant, user, actor)
    return grant


def take_grant(*, username: str, grant_id: int, by: User | None, actor: Actor) -> None:
    """Take one grant away. `by` needs people.manage in its scope."""
    with transaction.atomic():
        user = _locked(username)
        grant = user.grants.filter(pk=grant_id).first()
        if grant is None:
            raise NotFound("no-such-grant", f"{username} has no such grant.")
        if by is not None:
            require(by, "people.manage", cluster=grant.cluster, namespace=grant.namespace)
        _record_grant("access.take_grant", grant, user, actor)
        grant.delete()


def close_account(*, username: str, by: User | None, actor: Actor) -> User:
    """Close an account: sessions, tokens and votes of it count no more. Its history stays."""
    if by is not None:
        require(by, "people.manage")
        if by.username == username:
            raise Refused("own-account", "You cannot close your own account.", next_action="Ask another one.")
    with transaction.atomic():
        user = _locked(username)
        if user.is_active:
            user.is_active = False
            user.save(update_fields=["is_active"])
            ended = list(
                ApiToken.objects.filter(owner=user, revoked_at=None).values_list("prefix", flat=True)
            )
            record_event(
                actor=actor,
                action="access.close_account",
                target_kind="person",
                target_id=username,
                after={"tokens_without_effect": ended},
            )
    return user


def _locked(username: str) -> User:
    user = User.objects.select_for_update(no_key=True).filter(username=username).first()
    if user is None:
        raise NotFound("no-such-person", f"There is no account {username}.")
    return user


def _record_grant(action: str, grant: Grant, user: User, actor: Actor) -> None:
    scope: dict[str, Any] = {"role": grant.role, "cluster": grant.cluster, "namespace": grant.namespace}
    record_event(actor=actor, action=action, target_kind="person", target_id=user.username, after=scope)


def _refuse_account(user: User, password: str | None) -> None:
    try:
        user.full_clean(exclude=["password"], validate_unique=False, validate_constraints=False)
        if password is not None:
            validate_password(password, user)
    except ValidationError as error:
        field, sentences = next(iter(getattr(error, "error_dict", {"password": error}).items()))
        messages = ValidationError(sentences).messages
        raise BadInput("account-not-valid", " ".join(messages), field=field) from error
    if user.kind == User.Kind.PERSON and password is None:
        raise BadInput("password-missing", "A person needs a password.", field="password")
    if user.kind == User.Kind.SERVICE and password is not None:
        raise BadInput("password-not-used", "A service account has no password.", field="password")
