"""Labels of templates: the same label for the same content in the same order, another one for any other.

The real managers hash the JSON of their Go structures. The digits here are others; what counts as a difference is the
same: fields that Go leaves out because they are empty, and two spellings of one quantity, are none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

Doc = dict[str, Any]
_SET_DIGITS = 8
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
# What the API server or a webhook fills into a template: written out or not, it is the same.
_TEMPLATE_DEFAULTS = {"size": 1, "restartPolicy": "RecreateGroupOnPodRestart"}


def set_revision(roles: Sequence[Doc]) -> str:
    """The revision label of a set: of its roles' names and templates, in order; 8 hexadecimal digits."""
    content = [
        {
            "name": role["name"],
            "template": plain({**_TEMPLATE_DEFAULTS, **role["spec"]["leaderWorkerTemplate"]}),
        }
        for role in roles
    ]
    return digest(content)[:_SET_DIGITS]


def template_hash(*content: Any) -> str:
    """The label of a pod template, as LeaderWorkerSet, StatefulSet and Deployment controllers give them."""
    return digest([plain(each) for each in content])[:10]


def digest(content: Any) -> str:
    """SHA-256 of JSON values, hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any, key: str = "") -> Any:
    """JSON values without what is empty, quantities in one spelling."""
    if isinstance(value, dict):
        if key in ("limits", "requests"):
            return {name: str(quantity(amount)) for name, amount in value.items()}
        kept = {name: plain(each, name) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each not in (None, "", {}, [])}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def quantity(text: Any) -> Decimal:
    """The number that a Kubernetes quantity such as "2Ti" or "500m" stands for; 0 for text that is none."""
    written = str(text).strip()
    unit = next((each for each in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei") if written.endswith(each)), "")
    if not unit and written[-1:] in _SUFFIXES:
        unit = written[-1]
    try:
        return (Decimal(written[: len(written) - len(unit)]) * _SUFFIXES.get(unit, Decimal(1))).normalize()
    except InvalidOperation:
        return Decimal(0)
