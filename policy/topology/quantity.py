"""Kubernetes quantities as exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

_SHAPE = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]+|[a-zA-Z]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# A larger exponent is a mistake, and 10**exponent would take the memory with it.
_LARGEST_EXPONENT = 40


class BadQuantity(ValueError):
    """Text that is not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int) -> Fraction:
    """The exact value of a quantity such as `1500m`, `0.5`, `2Gi`, `1e3`, `12E` or a JSON integer.

    Suffixes are those of apimachinery's resource.Quantity: n u m k M G T P E, Ki to Ei, or a decimal
    exponent. `E` alone is 10**18, `E5` is an exponent. Raises BadQuantity for anything else.
    """
    if isinstance(text, int):
        return Fraction(text)
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise BadQuantity(f"{text!r} is not a quantity")
    number, suffix = found.groups()
    return Fraction(number if not number.endswith(".") else number[:-1]) * _scale(suffix, text)


def in_thousandths(text: str | int) -> int:
    """Thousandths, rounded up, as the scheduler counts `cpu`."""
    return ceil(parse_quantity(text) * 1000)


def in_units(text: str | int) -> int:
    """Whole units, rounded up, as the scheduler counts bytes and devices."""
    return ceil(parse_quantity(text))


def count(resource: str, text: str | int) -> int:
    """A quantity in the scheduler's unit of that resource: thousandths for `cpu`, whole units otherwise."""
    return in_thousandths(text) if resource == "cpu" else in_units(text)


def _scale(suffix: str, text: str) -> Fraction:
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    if suffix[:1] in ("e", "E") and suffix[1:].lstrip("+-").isdigit():
        exponent = int(suffix[1:])
        if abs(exponent) <= _LARGEST_EXPONENT:
            return Fraction(10) ** exponent
    raise BadQuantity(f"{text!r} has the unknown suffix {suffix!r}")
