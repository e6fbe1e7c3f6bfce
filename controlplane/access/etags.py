"""Optimistic editing: the version of a row is its ETag, and If-Match must name it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.errors import BadInput, MissingPrecondition, StaleEdit

F = TypeVar("F", bound=Callable[..., Any])
_FORM = re.compile(r'^(?:W/)?"(\d{1,18})"$')


def etag_of(version: int) -> str:
    """The ETag of a version: `"7"`."""
    return f'"{version}"'


def with_etag(response: Response, version: int) -> Response:
    """The response, carrying the version that an If-Match has to name."""
    response["ETag"] = etag_of(version)
    return response


def conditional(method: F) -> F:
    """Mark a view method that reads If-Match, so that the OpenAPI document says so."""
    method.needs_if_match = True  # type: ignore[attr-defined]
    return method


def expected_version(request: Request) -> int:
    """The version that If-Match names. Raises MissingPrecondition without it, BadInput on another form."""
    value = request.headers.get("If-Match", "")
    if not value:
        raise MissingPrecondition(
            "if-match-missing",
            "This needs an If-Match header with the version you saw.",
            next_action="Read it again and send its ETag as If-Match.",
        )
    found = _FORM.match(value.strip())
    if found is None:
        raise BadInput("if-match-malformed", 'If-Match must be one ETag as it was sent, such as "7".')
    return int(found.group(1))


def check_version(*, expected: int, actual: int) -> None:
    """Raise StaleEdit unless they are equal. Call it under the lock of the row."""
    if expected != actual:
        raise StaleEdit(
            "stale-edit",
            "Somebody changed this after you read it.",
            next_action="Read it again, then decide anew.",
            expected=expected,
            actual=actual,
        )
