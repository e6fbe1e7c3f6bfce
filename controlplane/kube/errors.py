"""What can become of a call to a Kubernetes API, told apart by what the caller may conclude.

Three answers matter to somebody who writes: it was refused (nothing changed), nothing was sent (nothing
changed), or nobody knows (`unanswered`). Only the last one needs a look at the world before anything else
is done.
"""

from __future__ import annotations

import json
import re
from typing import Any

_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request')
# The API server's own words when a webhook did not answer: it stopped before storing anything.
_WEBHOOK_DOWN = "failed calling webhook"


class BadCredentials(Exception):
    """The kubeconfig, or the context in it, is missing or cannot be used."""


class KubeError(Exception):
    """A call that did not do what was asked.

    `status` is the HTTP status (0: no answer), `reason` the machine-readable reason of the Status object
    (`NotFound`, `Conflict`, …), `message` its sentence, `details` its details (group, kind, name, causes).
    `unanswered` is True when a write may have been applied all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: dict[str, Any] | None = None,
        verb: str = "",
        target: str = "",
    ) -> None:
        super().__init__(f"{verb} {target}: {message}" if verb else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.verb = verb
        self.target = target
        self.unanswered = False

    @property
    def policy(self) -> str:
        """Name of the ValidatingAdmissionPolicy that refused the call, or an empty string."""
        found = _POLICY.search(self.message)
        return found.group(1) if found else ""

    @property
    def by_admission(self) -> bool:
        """True when an admission policy or webhook refused the call, rather than missing permission or a
        schema."""
        return bool(self.policy or _WEBHOOK.search(self.message))

    def as_facts(self) -> dict[str, Any]:
        """The error as JSON values for findings and audit rows."""
        return {
            "verb": self.verb,
            "target": self.target,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "unanswered": self.unanswered,
        }


class ObjectMissing(KubeError):
    """404. `api_missing` tells an absent kind (no such CRD) from an absent object."""

    @property
    def api_missing(self) -> bool:
        """True when the server does not know the resource at all."""
        return not self.details.get("name")


class Conflict(KubeError):
    """409: the object is not the one that was read (resourceVersion or UID)."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Expired(KubeError):
    """410: the resourceVersion or the page token is too old; list again."""


class Denied(KubeError):
    """403: no permission, or refused by admission (`by_admission`)."""


class NotAuthenticated(KubeError):
    """401: the API server does not know these credentials."""


class Invalid(KubeError):
    """400 or 422: the object is wrong, or an admission policy with reason Invalid refused it
    (`by_admission`)."""


class TooManyRequests(KubeError):
    """429: refused before it was handled. `retry_after` is in seconds (0: not said)."""

    retry_after: float = 0.0


class ServerFailed(KubeError):
    """5xx. A write may have been stored before it failed (a timeout on the way from etcd looks the same),
    except where the server says that a webhook did not answer."""

    @property
    def webhook_down(self) -> bool:
        """True when the server stopped because an admission webhook did not answer."""
        return _WEBHOOK_DOWN in self.message


class Unreachable(KubeError):
    """No request byte of a write left this process, or a read got no answer: nothing has changed."""


class Unanswered(KubeError):
    """A write was sent and no complete answer came: it may or may not have been applied."""

    def __init__(self, message: str, *, verb: str = "", target: str = "") -> None:
        super().__init__(message, verb=verb, target=target)
        self.unanswered = True


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,
    401: NotAuthenticated,
    403: Denied,
    404: ObjectMissing,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(document: dict[str, Any], *, status: int, verb: str = "", target: str = "") -> KubeError:
    """The error that a Kubernetes `Status` document means; `status` is the HTTP status or the document's
    code."""
    reason = str(document.get("reason") or "")
    kind: type[KubeError] = _BY_STATUS.get(status, ServerFailed if status >= 500 else KubeError)
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        str(document.get("message") or reason or f"HTTP {status}"),
        status=status,
        reason=reason,
        details=document.get("details") or {},
        verb=verb,
        target=target,
    )


def from_answer(
    body: bytes, *, status: int, verb: str = "", target: str = "", retry_after: str = "", write: bool = False
) -> KubeError:
    """The error for an HTTP answer outside 2xx; the body may be a Status document, plain text or nothing."""
    try:
        document = json.loads(body)
    except ValueError:
        document = {"message": body.decode("utf-8", "replace").strip()[:500]}
    if not isinstance(document, dict):
        document = {}
    error = from_status(document, status=status, verb=verb, target=target)
    if isinstance(error, TooManyRequests):
        seconds = retry_after or (error.details.get("retryAfterSeconds") or 0)
        try:
            error.retry_after = max(0.0, float(seconds))
        except (TypeError, ValueError):
            error.retry_after = 0.0
    if isinstance(error, ServerFailed) and write:
        error.unanswered = not error.webhook_down
    return error
