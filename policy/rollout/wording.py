"""Lists, counts and first letters in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def count(number: int, noun: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def capitalised(text: str) -> str:
    """The same with its first letter in upper case, and the rest as it is: names keep their spelling."""
    return text[:1].upper() + text[1:]
