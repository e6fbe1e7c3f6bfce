"""What of an engine's answer can be kept and judged: a broken engine may send anything that is JSON, and some that is
not. What has not the shape it should have counts as absent, so that a verdict says what is lacking."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.audit.redaction import text

# JSON has no limit for numbers: beyond these they are no counts and no log-probabilities (engines cut off at -9999),
# and sums of them would not stay finite.
MOST = 2**53
FARTHEST = 100_000.0


def text_of(value: object) -> str:
    """Text that can be stored; "" for anything else."""
    return text(value) if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """A count from 0 on; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MOST else None


def tokens_of(value: object) -> list[int | str]:
    """Tokens as pieces of text or ids; empty where one of them is neither."""
    if not isinstance(value, list) or not all(isinstance(each, str) or _is_id(each) for each in value):
        return []
    return [text(each) if isinstance(each, str) else each for each in value]


def logprobs_of(value: object) -> list[float | None]:
    """Log-probabilities; None where there is no finite one, and empty where one of them is no number at all."""
    if not isinstance(value, list) or not all(each is None or _is_number(each) for each in value):
        return []
    return [_near(each) for each in value]


def alternatives_of(value: object) -> list[dict[int | str, float]]:
    """For each position the likeliest tokens with theirs; those without a finite one are left out, and it is empty
    where a position has another shape."""
    if not isinstance(value, list) or not all(each is None or isinstance(each, Mapping) for each in value):
        return []
    if not all(each is None or all(map(_is_number, each.values())) for each in value):
        return []
    return [
        {
            text(str(token)): near
            for token, number in (each or {}).items()
            if (near := _near(number)) is not None
        }
        for each in value
    ]


def _near(number: float | None) -> float | None:
    """NaN is in no range, and a whole number of any length compares."""
    return float(number) if number is not None and -FARTHEST <= number <= FARTHEST else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_id(value: object) -> bool:
    return count_of(value) is not None
