"""Idempotency-Key: a POST that is sent again gives the first answer, and acts once.

The answer is stored in the transaction of the action itself, so both exist or neither does. Only successes
are kept: a refusal has changed nothing, so the same key may be tried again when the cause is gone.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

from django.db import transaction
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.access.models import ApiToken, IdempotencyRecord, User
from controlplane.audit.clock import database_now
from controlplane.errors import BadInput, MissingPrecondition, NotSignedIn, Refused
from policy.canonical import NotCanonical, digest

IN_PROGRESS_AT_MOST = timedelta(seconds=60)
KEPT_FOR = timedelta(hours=24)
REPLAYED = "Idempotent-Replay"
_KEPT_HEADERS = ("ETag", "Location")
_FORM = re.compile(r"^[\x21-\x7e]{1,200}$")

P = ParamSpec("P")
V = TypeVar("V", bound=APIView)
Handler = Callable[Concatenate[V, Request, P], Response]


def idempotent(handler: Handler[V, P]) -> Handler[V, P]:
    """Make a view method act once per Idempotency-Key, which becomes required.

    Same key and request: the stored answer with `Idempotent-Replay: true`. Same key, other request: 422.
    Still in progress: 409, for at most 60 s, after which the first try counts as dead and this one acts.
    """

    @functools.wraps(handler)
    def once(self: V, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        record, stored = _claim(request)
        if stored is not None:
            return stored
        try:
            with transaction.atomic():
                response = handler(self, request, *args, **kwargs)
                if response.status_code >= 300:
                    raise _NotKept(response)
                _keep(record, response)
            return response
        except _NotKept as answer:
            _forget(record)
            return answer.response
        except BaseException:
            _forget(record)
            raise

    once.needs_idempotency_key = True  # type: ignore[attr-defined]
    return once


class _NotKept(Exception):
    """Carries an unsuccessful response out of the transaction, which is rolled back."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def _claim(request: Request) -> tuple[IdempotencyRecord, Response | None]:
    user = request.user
    if not isinstance(user, User):
        raise NotSignedIn("not-signed-in", "This needs an account.", next_action="Sign in, or send a token.")
    key, wanted, now = _key(request), _request_digest(request), database_now()
    IdempotencyRecord.objects.filter(user=user, created_at__lt=now - KEPT_FOR).delete()
    record, mine = IdempotencyRecord.objects.get_or_create(
        user=user, key=key, defaults={"request_digest": wanted, "created_at": now}
    )
    if mine:
        return record, None
    if record.request_digest != wanted:
        raise BadInput(
            "idempotency-key-reused",
            "This Idempotency-Key was used for another request.",
            next_action="Use a new key for a new request.",
        )
    if record.status is None:
        _take_over(record, now)
        return record, None
    return record, _replay(record)


def _take_over(record: IdempotencyRecord, now: datetime) -> None:
    started = record.created_at
    abandoned = started < now - IN_PROGRESS_AT_MOST
    # Two may see the same abandoned try; the one whose update hits goes on.
    mine = IdempotencyRecord.objects.filter(pk=record.pk, status=None, created_at=started)
    if not abandoned or not mine.update(created_at=now):
        raise _in_progress()
    record.created_at = now


def _in_progress() -> Refused:
    return Refused(
        "request-in-progress",
        "The first request with this Idempotency-Key is still being worked on.",
        next_action="Send it again in a moment.",
    )


def _keep(record: IdempotencyRecord, response: Response) -> None:
    body = None if response.data is None else json.loads(JSONRenderer().render(response.data))
    headers = {name: response[name] for name in _KEPT_HEADERS if response.has_header(name)}
    ours = IdempotencyRecord.objects.filter(pk=record.pk, status=None, created_at=record.created_at)
    # Somebody took over because this took too long: their answer stands, this one is rolled back.
    if not ours.update(status=response.status_code, body=body, headers=headers):
        raise _in_progress()


def _forget(record: IdempotencyRecord) -> None:
    IdempotencyRecord.objects.filter(pk=record.pk, status=None, created_at=record.created_at).delete()


def _replay(record: IdempotencyRecord) -> Response:
    response = Response(record.body, status=record.status)
    for name, value in record.headers.items():
        response[name] = value
    response[REPLAYED] = "true"
    return response


def _key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if not key:
        raise MissingPrecondition(
            "idempotency-key-missing",
            "This action needs an Idempotency-Key header.",
            next_action="Send a fresh random key; send the same one again when you retry.",
        )
    if not _FORM.match(key):
        raise BadInput(
            "idempotency-key-malformed", "An Idempotency-Key is 1 to 200 visible ASCII characters."
        )
    return key


def _request_digest(request: Request) -> str:
    caller = request.auth.prefix if isinstance(request.auth, ApiToken) else "session"
    facts = [request.method, request.path, request.headers.get("If-Match", ""), caller]
    try:
        return digest([*facts, request.data])
    except NotCanonical:
        # Fractions have no canonical form; the body in key order is unique enough to compare with itself.
        return digest([*facts, json.dumps(request.data, sort_keys=True)])
