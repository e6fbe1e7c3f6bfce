"""What of a combination may be shown: env values as salted hashes, ConfigMaps by key and digest of their content."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from policy.canonical import digest, redact

Json = dict[str, Any]


def shown(document: Mapping[str, Any]) -> Json:
    """The document as people see it. One salt per set, so that two combinations of it can be compared."""
    named = document["set"]
    text = f"combination:{named['namespace']}/{named['name']}:{named['uid']}"
    salt = hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).digest()
    found: Any = redact({**document, "config_maps": {}}, salt=salt)
    found["config_maps"] = {
        name: None if content is None else _keys(content, salt)
        for name, content in document["config_maps"].items()
    }
    return dict(found)


def document_digest(document: Mapping[str, Any]) -> str:
    """The digest of a combination: over what is shown, so that it can be told without telling a secret."""
    return digest(shown(document))


def _keys(content: Mapping[str, Any], salt: bytes) -> Json:
    return {
        "immutable": content["immutable"],
        "keys": {
            key: hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()
            for field in ("data", "binaryData")
            for key, text in content[field].items()
        },
    }
