"""API tokens: a high-entropy secret shown once, its hash kept, its rights and its life bounded."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from controlplane.access.models import ApiToken, User
from controlplane.access.permissions import SCOPES, require
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import BadInput, NotAllowed, NotFound

MARK = "lsk"
LONGEST_LIFE = timedelta(days=366)
_USE_NOTED_EVERY = timedelta(minutes=1)


def mint_token(
    *,
    owner: User,
    minted_by: User | None,
    responsible: User,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime,
    actor: Actor,
) -> tuple[ApiToken, str]:
    """Make a token of `owner` for which `responsible` answers; returns it with its secret, never seen again.

    `minted_by` None is the command line; the responsible person then counts as the minter.
    Raises BadInput for unknown scopes, a life of more than 366 days or a past one, or a responsible account
    that is no active person; NotAllowed where a token mints, or somebody mints for others without the right.
    """
    _refuse_minting(owner=owner, minted_by=minted_by, responsible=responsible)
    now = database_now()
    _refuse_shape(name=name, scopes=scopes, expires_at=expires_at, now=now)
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with transaction.atomic():
        token = ApiToken.objects.create(
            prefix=prefix,
            digest=_digest(secret),
            name=name,
            owner=owner,
            minted_by=minted_by or responsible,
            responsible=responsible,
            scopes=sorted(set(scopes), key=SCOPES.index),
            created_at=now,
            expires_at=expires_at,
        )
        record_event(
            actor=actor,
            action="access.mint_token",
            target_kind="token",
            target_id=prefix,
            after={
                "name": name,
                "owner": owner.username,
                "responsible": responsible.username,
                "scopes": token.scopes,
                "expires_at": expires_at,
            },
        )
    return token, f"{MARK}_{prefix}_{secret}"


def revoke_token(*, token_id: int, by: User, actor: Actor) -> ApiToken:
    """End a token; its owner, its responsible person and administrators may. Twice changes nothing."""
    with transaction.atomic():
        token = (
            ApiToken.objects.select_for_update(no_key=True, of=("self",))
            .select_related("owner", "responsible", "minted_by")
            .filter(pk=token_id)
            .first()
        )
        if token is None:
            raise NotFound("no-such-token", "There is no such token.")
        if by.pk not in (token.owner_id, token.responsible_id):
            require(by, "people.manage")
        if token.revoked_at is None:
            token.revoked_at = database_now()
            token.save(update_fields=["revoked_at"])
            record_event(
                actor=actor, action="access.revoke_token", target_kind="token", target_id=token.prefix
            )
    return token


def find_token(bearer: str) -> ApiToken | None:
    """The live token of this text, its owner carrying it; None for anything unknown, ended or closed."""
    mark, _, rest = bearer.partition("_")
    prefix, _, secret = rest.partition("_")
    if mark != MARK or len(prefix) != 12 or not secret:
        return None
    token = ApiToken.objects.select_related("owner", "responsible").filter(prefix=prefix).first()
    # Compare in any case, so that an unknown prefix takes as long as a wrong secret.
    right = hmac.compare_digest(_digest(secret), token.digest if token else _digest(""))
    if token is None or not right:
        return None
    now = database_now()
    live = token.revoked_at is None and token.expires_at > now
    if not live or not token.owner.is_active or not token.responsible.is_active:
        return None
    _note_use(token, now)
    token.owner.token = token
    return token


def _note_use(token: ApiToken, now: datetime) -> None:
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_NOTED_EVERY)
    if token.last_used_at is None or token.last_used_at < now - _USE_NOTED_EVERY:
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def _digest(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


def _refuse_minting(*, owner: User, minted_by: User | None, responsible: User) -> None:
    if minted_by is not None and minted_by.token is not None:
        raise NotAllowed(
            "token-cannot-mint", "A token makes no tokens.", next_action="Sign in and make it in person."
        )
    if minted_by is not None and (owner.pk != minted_by.pk or responsible.pk != minted_by.pk):
        require(minted_by, "people.manage")
    if responsible.kind != User.Kind.PERSON or not responsible.is_active:
        raise BadInput(
            "responsible-not-a-person",
            "The one who answers for a token must be an active person.",
            field="responsible",
        )
    if not owner.is_active:
        raise BadInput("owner-closed", "The owner's account is closed.", field="owner")


def _refuse_shape(*, name: str, scopes: Sequence[str], expires_at: datetime, now: datetime) -> None:
    if not name.strip():
        raise BadInput("name-missing", "A token needs a name that says what it is for.", field="name")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise BadInput(
            "scope-unknown" if unknown else "scope-missing",
            f"Scopes are {', '.join(SCOPES)}; none may vote.",
            field="scopes",
            unknown=unknown,
        )
    if not now < expires_at <= now + LONGEST_LIFE:
        raise BadInput(
            "expiry-out-of-range",
            f"A token expires within {LONGEST_LIFE.days} days, in the future.",
            field="expires_at",
        )
