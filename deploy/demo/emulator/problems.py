"""Refusals as a Kubernetes API gives them: an HTTP status, a reason for programs, a message for people, details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploy.demo.emulator.kinds import Kind

Doc = dict[str, Any]


class ApiProblem(Exception):
    """A request that is not done. ``status`` is the HTTP status, ``reason`` what programs look at (NotFound,
    Conflict, ...), ``details`` names the object and lists causes; ``retry_after_s`` goes out as Retry-After."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Doc | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after_s = retry_after_s

    def document(self) -> Doc:
        """The Status object of the answer."""
        details = dict(self.details)
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        body: Doc = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        if details:
            body["details"] = details
        return body


def _named(kind: Kind, name: str) -> Doc:
    # The real server puts the plural into "kind" here.
    details: Doc = {"name": name, "kind": kind.plural}
    return {**details, "group": kind.group} if kind.group else details


def not_found(kind: Kind, name: str) -> ApiProblem:
    """404: no such object."""
    return ApiProblem(404, "NotFound", f'{kind.ref} "{name}" not found', _named(kind, name))


def no_such_path() -> ApiProblem:
    """404: no such kind or path."""
    return ApiProblem(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiProblem:
    """409: the name is taken."""
    return ApiProblem(409, "AlreadyExists", f'{kind.ref} "{name}" already exists', _named(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiProblem:
    """409: the object is not the one that the writer meant."""
    message = f'Operation cannot be fulfilled on {kind.ref} "{name}": {why}'
    return ApiProblem(409, "Conflict", message, _named(kind, name))


def modified(kind: Kind, name: str) -> ApiProblem:
    """409: somebody was faster."""
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def forbidden(kind: Kind, name: str, why: str, *, subresource: str = "") -> ApiProblem:
    """403, by rights or by admission."""
    subject = f'{kind.ref} "{name}"' if name else kind.ref
    details = _named(kind, name)
    if not name:
        del details["name"]
    return ApiProblem(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def invalid(kind: Kind, name: str, causes: Sequence[tuple[str, str, str]]) -> ApiProblem:
    """422: wrong fields, each as (field path, reason such as FieldValueRequired, sentence)."""
    listed = [{"reason": reason, "message": text, "field": path} for path, reason, text in causes]
    texts = [f"{path}: {text}" for path, _, text in causes]
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: Doc = {**_named(kind, name), "kind": kind.kind, "causes": listed}
    return ApiProblem(422, "Invalid", f'{subject} "{name}" is invalid: {said}', details)


def bad_request(message: str) -> ApiProblem:
    """400: the request itself makes no sense."""
    return ApiProblem(400, "BadRequest", message)


def expired(message: str) -> ApiProblem:
    """410: the version or page token is too old; list again."""
    return ApiProblem(410, "Expired", message)


def not_allowed() -> ApiProblem:
    """405: the path exists, the method does not."""
    return ApiProblem(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def unauthorized() -> ApiProblem:
    """401: a token that nobody has."""
    return ApiProblem(401, "Unauthorized", "Unauthorized")
