"""Hold parameters as they stand in a cluster: ConfigMaps `hold-<namespace>.<set>` in Lockstep's own
namespace.

The admission policy `lockstep-rollout-hold` reads the same keys; the box itself is policy.rollout.box.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.rollout.box import Box, box_from_data

NAMESPACE = "lockstep"
HOLD_LABEL = "lockstep.dev/hold"
STANDING = "true"
# The shipped admission policies (deploy/target), each with a binding of the same name.
POLICIES = ("lockstep-rollout-hold", "lockstep-hold-guard", "lockstep-hold-keeper")

_BOUND = re.compile(r"(floor|ceil)\.[0-9]+\.[0-9a-z]+\.[a-z0-9]([a-z0-9-]*[a-z0-9])?")
# Decimal digits and nothing else: all that Lockstep writes, and int() of CEL reads them the same way.
_NUMBER = re.compile(r"[0-9]{1,18}")


class UnreadableParameter(ValueError):
    """A ConfigMap that should be a hold parameter and is not: a key or number in it makes no sense."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A hold parameter as read. It limits the set only while it is `standing`."""

    namespace: str
    set_name: str
    operation: str
    fence: int
    standing: bool
    box: Box


def parse_parameter(config_map: Mapping[str, Any]) -> Parameter:
    """Read a ConfigMap. Raises UnreadableParameter when a bound or number is none, or no set is named; keys
    that are no bounds (addresses, lines for people) are left alone."""
    data = config_map.get("data") or {}
    if not data.get("namespace") or not data.get("set"):
        raise UnreadableParameter("the parameter names no set")
    for key, value in data.items():
        if not key.startswith(("floor.", "ceil.")):
            continue
        if not _BOUND.fullmatch(key):
            raise UnreadableParameter(f"{key} names no slice, revision and role")
        if not _NUMBER.fullmatch(str(value)):
            raise UnreadableParameter(f"{key} is {value!r}, not a whole number")
    fence = str(data.get("fence") or "")
    if not _NUMBER.fullmatch(fence):
        raise UnreadableParameter(f"fence is {fence!r}, not a whole number")
    return Parameter(
        namespace=data["namespace"],
        set_name=data["set"],
        operation=str(data.get("operation") or ""),
        fence=int(fence),
        standing=is_standing(config_map),
        box=box_from_data(data),
    )


def is_parameter(config_map: Mapping[str, Any]) -> bool:
    """Whether a ConfigMap is a hold parameter, by its name or its label (as the guard policy decides it)."""
    metadata = config_map.get("metadata") or {}
    return str(metadata.get("name") or "").startswith("hold-") or HOLD_LABEL in (metadata.get("labels") or {})


def is_standing(config_map: Mapping[str, Any]) -> bool:
    """Whether the admission policy reads this ConfigMap now."""
    labels = (config_map.get("metadata") or {}).get("labels") or {}
    return labels.get(HOLD_LABEL) == STANDING
