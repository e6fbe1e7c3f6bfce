"""Counts out of counts: binomial tails, exact intervals, a table of two by two; and Student's quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable

_TINY = 1e-300


def binomial_at_most(successes: int, trials: int, chance: float) -> float:
    """P(X <= successes) of `trials` tries that succeed with `chance` each."""
    _check(successes, trials, chance)
    if successes >= trials or chance == 0.0:
        return 1.0
    if chance == 1.0:
        return 0.0
    return _beta_part(trials - successes, successes + 1, 1.0 - chance)


def binomial_at_least(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) of `trials` tries that succeed with `chance` each."""
    _check(successes, trials, chance)
    if successes <= 0 or chance == 1.0:
        return 1.0
    if chance == 0.0:
        return 0.0
    return _beta_part(successes, trials - successes + 1, chance)


def clopper_pearson(successes: int, trials: int, *, level: float = 0.99) -> tuple[float, float]:
    """The exact two-sided interval of a proportion; (0, 1) where nothing was tried.

    Conservative: it covers the truth at least as often as `level` says, for every count.
    """
    _check(successes, trials, 0.5)
    if trials == 0:
        return 0.0, 1.0
    tail = (1.0 - level) / 2.0
    low = 0.0 if successes == 0 else _where(lambda p: binomial_at_least(successes, trials, p) >= tail)
    high = 1.0 if successes == trials else _where(lambda p: binomial_at_most(successes, trials, p) < tail)
    return low, high


def student_quantile(level: float, freedom: int) -> float:
    """The value that Student's t stays below with chance `level`, at `freedom` degrees. `level` is over a half."""
    if not 0.5 < level < 1.0 or freedom < 1:
        raise ValueError(f"no quantile at {level} with {freedom} degrees of freedom")

    # With x = freedom / (freedom + t^2), which falls as t grows, the upper tail is half of I_x(freedom/2, 1/2).
    x = _where(lambda x: _beta_part(freedom / 2.0, 0.5, x) / 2.0 >= 1.0 - level)
    return math.sqrt(freedom * (1.0 - x) / x)


def fisher_more(failed: int, tried: int, other_failed: int, other_tried: int) -> float:
    """The chance to see at least `failed` of all failures among the first, if both fail alike (Fisher, exact)."""
    _check(failed, tried, 0.5)
    _check(other_failed, other_tried, 0.5)
    all_tried, all_failed = tried + other_tried, failed + other_failed
    ways = math.comb(all_tried, all_failed)
    tail = sum(
        math.comb(tried, k) * math.comb(other_tried, all_failed - k)
        for k in range(failed, min(tried, all_failed) + 1)
    )
    return tail / ways


def _check(successes: int, trials: int, chance: float) -> None:
    if not 0 <= successes <= trials or not 0.0 <= chance <= 1.0:
        raise ValueError(f"{successes} of {trials} at {chance} is no count of tries")


def _where(beyond: Callable[[float], bool]) -> float:
    """The place in (0, 1) where a condition that is false below becomes true."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if beyond(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2.0


def _beta_part(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz)."""
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return min(1.0, math.exp(front) * _fraction(a, b, x) / a)
    return max(0.0, 1.0 - math.exp(front) * _fraction(b, a, 1.0 - x) / b)


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _apart(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1.0 / _apart(1.0 + even * d), _apart(1.0 + even / c)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / _apart(1.0 + odd * d), _apart(1.0 + odd / c)
        result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return result


def _apart(value: float) -> float:
    """Not zero: the fraction divides by it."""
    return value if abs(value) > _TINY else _TINY
