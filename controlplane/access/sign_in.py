"""Signing in by name and password, slowed down by failures that the database remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar

from django.contrib.auth import authenticate, login, logout
from django.db import transaction
from django.http import HttpRequest

from controlplane.access.models import SignInFailure, User
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import LockstepError, NotSignedIn

SIGNED_IN_AT = "signed_in_at"
FAILURES_ALLOWED = 5
COUNTED_FOR = timedelta(minutes=15)


class TooManyTries(LockstepError):
    """Too many failed sign-ins of one name from one address."""

    status: ClassVar[int] = 429


def sign_in(*, request: HttpRequest, username: str, password: str, actor: Actor) -> User:
    """Open a session for this person. Raises NotSignedIn, or TooManyTries after 5 failures in 15 minutes.

    Name and address are counted together: a stranger cannot lock a person out from elsewhere. The try is
    written down as a failure before the password is looked at, so parallel guesses are counted too.
    """
    name, address, now = username[:150], actor.source_ip or "0.0.0.0", database_now()
    _count_try(name=name, address=address, now=now)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User) or user.kind != User.Kind.PERSON:
        raise NotSignedIn(
            "sign-in-failed",
            "Name and password do not match an account that may sign in.",
            next_action=f"Try again; after {FAILURES_ALLOWED} failures wait 15 minutes.",
            username=name,
        )
    login(request, user)
    request.session[SIGNED_IN_AT] = now.isoformat()
    with transaction.atomic():
        SignInFailure.objects.filter(username=name, address=address).delete()
        record_event(
            actor=replace(actor, name=user.username, kind="person"),
            action="access.sign_in",
            target_kind="person",
            target_id=user.username,
        )
    return user


def sign_out(*, request: HttpRequest, actor: Actor) -> None:
    """Close the session; its id is worth nothing any more."""
    if isinstance(request.user, User):
        with transaction.atomic():
            record_event(actor=actor, action="access.sign_out", target_kind="person", target_id=actor.name)
    logout(request)


def signed_in_at(request: HttpRequest) -> datetime | None:
    """When the person of this session last proved who they are; None without a session."""
    value = request.session.get(SIGNED_IN_AT) if hasattr(request, "session") else None
    return datetime.fromisoformat(value) if isinstance(value, str) else None


def _count_try(*, name: str, address: str, now: datetime) -> None:
    SignInFailure.objects.filter(at__lt=now - COUNTED_FOR).delete()
    mine = SignInFailure.objects.create(username=name, address=address, at=now)
    if SignInFailure.objects.filter(username=name, address=address).count() <= FAILURES_ALLOWED:
        return
    mine.delete()
    raise TooManyTries(
        "too-many-failures",
        f"{FAILURES_ALLOWED} sign-ins of this name failed from this address within 15 minutes.",
        next_action="Wait 15 minutes, or ask an administrator.",
    )
