"""What the OpenAPI document says beyond serializers: the two ways in, the headers of actions, and problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "RFC 9457. `code` is stable; `next_action` says what to do; `field` names the input at fault.",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "request_id": {"type": "string"},
        "next_action": {"type": "string"},
        "field": {"type": "string"},
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["field", "code", "detail"],
            },
        },
        "facts": {"type": "object", "additionalProperties": True},
    },
}
_ANSWER = {
    "description": "Refused or failed.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Bearer lsk_…`."""

    target_class = "controlplane.access.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """HTTP bearer."""
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The session cookie; unsafe methods also need X-CSRFToken."""

    target_class = "controlplane.access.authentication.SignedInAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The cookie's name."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


class Schema(AutoSchema):
    """Adds the headers that `idempotent` and `conditional` ask for."""

    def get_override_parameters(self) -> list[Any]:
        """Idempotency-Key and If-Match, where the view method needs them."""
        method = getattr(self.view, getattr(self.view, "action", "") or self.method.lower(), None)
        found: list[Any] = []
        if getattr(method, "needs_idempotency_key", False):
            words = "A fresh random key; the same one again when you retry."
            found.append(_header("Idempotency-Key", words, r"^[\x21-\x7e]{1,200}$"))
        if getattr(method, "needs_if_match", False):
            found.append(_header("If-Match", "The ETag that you saw.", r'^(W/)?"[0-9]{1,18}"$'))
        return [*super().get_override_parameters(), *found]


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Give every operation the problem document as its default answer (a drf-spectacular hook)."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = dict(_PROBLEM)
    for path in result.get("paths", {}).values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"]["default"] = _ANSWER
    return result


def _header(name: str, words: str, pattern: str) -> OpenApiParameter:
    schema = {"type": "string", "pattern": pattern}
    return OpenApiParameter(name, schema, OpenApiParameter.HEADER, required=True, description=words)
