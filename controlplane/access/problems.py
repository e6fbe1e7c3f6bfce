"""Every error as RFC 9457 problem+json, and every refusal of a write as an audit row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from django.contrib.auth import get_user
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.access.actors import actor_of, request_id
from controlplane.audit.services import record_refusal
from controlplane.errors import LockstepError

CONTENT_TYPE = "application/problem+json"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CODES: Mapping[type[exceptions.APIException], str] = {
    exceptions.NotAuthenticated: "not-signed-in",
    exceptions.AuthenticationFailed: "sign-in-failed",
    exceptions.PermissionDenied: "not-allowed",
    exceptions.NotFound: "not-found",
    exceptions.MethodNotAllowed: "method-not-allowed",
    exceptions.NotAcceptable: "not-acceptable",
    exceptions.UnsupportedMediaType: "unsupported-media-type",
    exceptions.Throttled: "too-many-requests",
    exceptions.ParseError: "malformed",
}
log = structlog.get_logger(__name__)


def render(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler. None for what nobody foresaw: Django answers 500 and logs the trace."""
    request: Request | None = context.get("request")
    problem = _as_problem(error)
    if problem is None:
        return None
    problem["request_id"] = request_id()
    if request is not None:
        _record(request, context, problem)
    response = Response(problem, status=problem["status"], content_type=CONTENT_TYPE)
    if isinstance(error, exceptions.APIException):
        for name in ("WWW-Authenticate", "Retry-After"):
            value = getattr(error, {"WWW-Authenticate": "auth_header", "Retry-After": "wait"}[name], None)
            if value:
                response[name] = str(value)
    if problem["status"] == 401 and not response.has_header("WWW-Authenticate"):
        response["WWW-Authenticate"] = 'Bearer realm="lockstep"'
    return response


def page_not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Django's handler404."""
    return _plain(404, "not-found", "There is nothing at this address.")


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Django's handler400."""
    return _plain(400, "malformed", "The request cannot be read.")


def permission_denied(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Django's handler403."""
    return _plain(403, "not-allowed", "You may not do this.")


def server_error(request: HttpRequest) -> JsonResponse:
    """Django's handler500: says nothing about the inside, and names the request for whoever reads the log."""
    return _plain(
        500,
        "internal-error",
        "Something failed that should not; nothing is known about the outcome.",
        next_action="Look at the object before you try again, and report the request id.",
    )


def _plain(status: int, code: str, detail: str, next_action: str = "") -> JsonResponse:
    problem = _document(status, code, detail, next_action=next_action)
    return JsonResponse({**problem, "request_id": request_id()}, status=status, content_type=CONTENT_TYPE)


def _document(status: int, code: str, detail: str, **extra: Any) -> dict[str, Any]:
    problem = {
        "type": f"urn:lockstep:error:{code}",
        "title": code.replace("-", " "),
        "status": status,
        "detail": detail,
        "code": code,
    }
    return problem | {name: value for name, value in extra.items() if value}


def _as_problem(error: Exception) -> dict[str, Any] | None:
    if isinstance(error, LockstepError):
        return error.as_problem()
    if isinstance(error, exceptions.ValidationError):
        return _invalid(error)
    if isinstance(error, exceptions.APIException):
        return _from_rest(error)
    if isinstance(error, Http404):
        return _document(404, "not-found", "There is no such thing, or none that you may see.")
    if isinstance(error, PermissionDenied):
        return _document(403, "not-allowed", "You may not do this.")
    if isinstance(error, SuspiciousOperation):
        return _document(400, "malformed", "The request cannot be read.")
    if isinstance(error, OperationalError | InterfaceError):
        log.error("database_unavailable", error=str(error))
        action = "Look at the object before you try again: the write may have been done."
        return _document(503, "database-unavailable", "The database does not answer.", next_action=action)
    return None


def _from_rest(error: exceptions.APIException) -> dict[str, Any]:
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else ""
    if str(error.detail).startswith("CSRF Failed"):
        return _document(
            403,
            "csrf-failed",
            str(error.detail),
            next_action="Read /api/v1/session and send its csrf_token as X-CSRFToken.",
        )
    known = next((text for kind, text in _CODES.items() if type(error) is kind), "")
    special = code if code not in ("", error.default_code) else ""
    return _document(error.status_code, special.replace("_", "-") or known or "error", str(error.detail))


def _invalid(error: exceptions.ValidationError) -> dict[str, Any]:
    fields = list(_flatten(error.get_full_details(), ""))
    first = fields[0] if fields else {"field": "", "detail": "The input is not valid."}
    detail = f"{first['field']}: {first['detail']}" if first["field"] else first["detail"]
    return _document(422, "invalid-input", detail, field=first["field"], fields=fields)


def _flatten(details: Any, path: str) -> Any:
    """Serializer errors as a flat list of {field, code, detail}, fields as dotted paths."""
    if isinstance(details, Mapping) and set(details) == {"message", "code"}:
        code = str(details["code"]).replace("_", "-")
        yield {"field": path, "code": code, "detail": str(details["message"])}
    elif isinstance(details, Mapping):
        for name, inner in details.items():
            step = "" if name == "non_field_errors" else str(name)
            yield from _flatten(inner, f"{path}.{step}".strip("."))
    elif isinstance(details, list):
        leaves = all(isinstance(item, Mapping) and set(item) == {"message", "code"} for item in details)
        for index, item in enumerate(details):
            yield from _flatten(item, path if leaves else f"{path}[{index}]")


def _record(request: Request, context: Mapping[str, Any], problem: Mapping[str, Any]) -> None:
    """One audit row per refused write. Callers without a name are logged only: they could fill the table."""
    if request.method in _SAFE or problem["status"] >= 500:
        return
    view = context.get("view")
    action = getattr(view, "action", None) or str(request.method).lower()
    room = getattr(view, "basename", None) or type(view).__name__
    audited: Mapping[str, str] = getattr(view, "audited_as", {})
    target = {**context.get("kwargs", {})}
    try:
        if problem["code"] == "csrf-failed":
            # Authentication stopped at the CSRF token; the session still says in whose name it was tried.
            request.user = get_user(request._request)
        actor = actor_of(request)
        if actor.kind == "nobody" and problem["code"] != "sign-in-failed":
            log.info("refused", code=problem["code"], action=action)
            return
        record_refusal(
            actor=actor,
            action=audited.get(action, f"{room}.{action}"),
            target_kind=getattr(view, "audited_kind", room),
            target_id=next(iter(target.values()), ""),
            code=problem["code"],
            reason=problem["detail"],
            after=problem.get("facts"),
        )
    except (DatabaseError, exceptions.APIException) as failure:
        # The answer to the caller matters more than its record, whose loss is loud in the log.
        log.error("refusal_not_recorded", code=problem["code"], action=action, error=str(failure))
