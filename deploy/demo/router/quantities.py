"""Durations as Go writes them and quantities as Kubernetes writes them."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)")
# The expression and its wording are those of the Kubernetes quantity parser.
_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_INT64 = 1 << 63


class BadValue(ValueError):
    """Text that is no duration or no quantity; the message is worded as the llm-d router words it."""


def duration_s(text: str) -> float:
    """Seconds of a Go duration ("1h30m0.5s", "200ms", "0", "-1s"); BadValue otherwise ("20", "1d")."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            raise BadValue(f'time: invalid duration "{text}"')
        number, unit = part.groups()
        if not unit:
            raise BadValue(f'time: missing unit in duration "{text}"')
        if unit not in _UNITS_S:
            raise BadValue(f'time: unknown unit "{unit}" in duration "{text}"')
        total += float(number) * _UNITS_S[unit]
        position = part.end()
    if not body:
        raise BadValue(f'time: invalid duration "{text}"')
    return -total if text.startswith("-") else total


def quantity(text: str) -> int:
    """Whole number of a Kubernetes quantity, fractions rounded away from zero; a value beyond int64 reads as 0.

    That is what Quantity.Value() gives to the router: 500m is 1, -500m is -1, 100E is 0. BadValue otherwise.
    """
    found = _QUANTITY.match(text)
    if found is None:
        raise BadValue(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix = found.groups()
    try:
        value = Decimal(number) * _factor(suffix)
    except (ArithmeticError, KeyError, ValueError):
        raise BadValue(f"unable to parse quantity's suffix in {text!r}") from None
    whole = int(value.to_integral_value(ROUND_CEILING if value > 0 else ROUND_FLOOR))
    return whole if -_INT64 <= whole < _INT64 else 0


def _factor(suffix: str) -> Decimal:
    if suffix in _BINARY:
        return Decimal(1 << _BINARY[suffix])
    if suffix in _DECIMAL:
        return Decimal(1).scaleb(_DECIMAL[suffix])
    if suffix[0] in "eE":
        return Decimal(1).scaleb(int(suffix[1:]))
    raise KeyError(suffix)
