"""What of a document may stand in an audit row: no secret, and nothing that JSONB cannot hold."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from policy.canonical import redact

SECRET_KEYS = frozenset({"password", "secret", "token", "authorization", "credentials", "cookie", "api_key"})
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def presentable(before: Any, after: Any) -> tuple[Any, Any]:
    """Both documents as JSON values without secrets.

    Values of environment variables, headers and Secrets become salted hashes (policy.canonical.redact), those
    of keys that name a secret become `redacted`. Both sides share one throw-away salt: a reader sees whether
    a secret changed, and cannot compare it with any other row.
    """
    salt = secrets.token_bytes(16)
    first, second = (None if side is None else redact(plain(side), salt=salt) for side in (before, after))
    return first, second


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON that both JSONB and the canonical form take; never raises on odd input.

    Times and fractions become text, sets sorted lists; NUL and lone surrogates, which PostgreSQL refuses,
    become the replacement character; what is nested deeper than 60 levels becomes its text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return text(value)
    if depth > 60:
        return text(repr(value)[:200])
    if isinstance(value, Mapping):
        return {text(str(key)): _entry(str(key), item, depth) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((plain(item, depth + 1) for item in value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, depth + 1) for item in value]
    return _scalar(value)


def text(value: str) -> str:
    """Text that PostgreSQL can store."""
    return value.replace("\x00", _REPLACEMENT).encode("utf-8", "replace").decode("utf-8")


def _entry(key: str, item: Any, depth: int) -> Any:
    if key.lower() in SECRET_KEYS and item is not None and not isinstance(item, bool):
        return "redacted"
    return plain(item, depth + 1)


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= 2**53 else repr(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    return text(str(value)[:1000])
