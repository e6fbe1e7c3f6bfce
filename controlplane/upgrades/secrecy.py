"""Plain env values never leave the plan: what is shown, voted on, audited and digested holds salted hashes."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from django.conf import settings

from policy.canonical import redact


def redacted(value: Any, *, plan_id: int) -> Any:
    """`policy.canonical.redact` under a salt of this plan's own, so that equal values stay comparable within it."""
    salt = hmac.new(settings.SECRET_KEY.encode(), f"plan:{plan_id}".encode(), hashlib.sha256).digest()
    return redact(value, salt=salt)
