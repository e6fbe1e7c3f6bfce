"""From a request to the actor of its audit rows."""

from __future__ import annotations

import structlog
from rest_framework.request import Request

from controlplane.access.models import ApiToken, User
from controlplane.audit.actor import Actor


def actor_of(request: Request) -> Actor:
    """The person, or the token with the person who answers for it; `nobody` without either."""
    asked, address = request_id(), request.META.get("REMOTE_ADDR") or None
    token = request.auth
    if isinstance(token, ApiToken):
        name = f"{request.user.get_username()}/{token.name}"
        return Actor(name, "token", token.responsible.get_username(), asked, address)
    if isinstance(request.user, User):
        return Actor(request.user.get_username(), "person", "", asked, address)
    return Actor("", "nobody", "", asked, address)


def request_id() -> str:
    """The id of the request at hand, as in every log line; empty outside a request."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))
