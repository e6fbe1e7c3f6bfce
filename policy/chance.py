"""Chance that can be repeated: a small generator, and the bootstrap that lives on it.

The generator is SplitMix64 (Steele, Lea and Flood, 2014): one 64-bit state, one addition and two multiplications
per number. It is not for secrets. Equal seeds give equal numbers on every machine and every Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from policy.proportions import student_quantile

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15


class SplitMix64:
    """A stream of numbers from one seed. Any integer is a seed; its low 64 bits count."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next number, 0 to 2**64 - 1, every one equally likely."""
        self._state = state = (self._state + _STEP) & _MASK
        return _mixed(state)

    def unit(self) -> float:
        """The next number in [0, 1), a multiple of 2**-53."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        """A number in 0 … limit - 1, every one equally likely. Raises ValueError under 1."""
        if limit < 1:
            raise ValueError(f"no number is below {limit} and at least 0")
        fair = 2**64 - 2**64 % limit
        while True:
            drawn = self.next()
            if drawn < fair:
                return drawn % limit

    def gauss(self) -> float:
        """A number of the standard normal distribution (Box and Muller)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.unit()))
        return radius * math.cos(2.0 * math.pi * self.unit())

    def shuffle(self, things: MutableSequence[Any]) -> None:
        """Put the things into an order of which each is equally likely (Fisher and Yates)."""
        for last in range(len(things) - 1, 0, -1):
            other = self.below(last + 1)
            things[last], things[other] = things[other], things[last]

    def fork(self, label: int) -> SplitMix64:
        """A stream of its own for one use. Depends on what was drawn before, and on the label."""
        return SplitMix64(_mixed(self.next() ^ _mixed((label * _STEP) & _MASK)))


def bootstrap_lower(values: Sequence[float], *, level: float, resamples: int, seed: int) -> float:
    """The one-sided lower bound of the mean at `level` (0.99: one in a hundred), by the percentile bootstrap.

    Resamples whole values (here: prompts) with replacement. The percentile is the expanded one (Hesterberg, 2015):
    few values make a plain percentile too narrow, here it is taken further out, as Student's distribution is from
    the normal one. Raises ValueError for no values, for a level outside (0, 1), and for so few resamples that the
    level has no percentile.
    """
    if not values or not 0.0 < level < 1.0 or (1.0 - level) * (resamples + 1) < 1.0:
        raise ValueError("a bound needs values, a level between 0 and 1, and resamples for that level")
    if len(values) == 1:
        return values[0]
    rank = max(0, math.floor(_expanded_tail(1.0 - level, len(values)) * (resamples + 1)) - 1)
    sums = sorted([sum(pick(values)) for pick in _picks(len(values), resamples, seed)])
    return float(sums[rank]) / len(values)


@lru_cache(maxsize=64)
def _expanded_tail(tail: float, size: int) -> float:
    """The part of the resamples to leave out, for a tail of this size over this many values."""
    stretched = student_quantile(1.0 - tail, size - 1) * math.sqrt(size / (size - 1))
    return 0.5 * math.erfc(stretched / math.sqrt(2.0))


@lru_cache(maxsize=4)
def _picks(
    size: int, resamples: int, seed: int
) -> tuple[Callable[[Sequence[float]], tuple[float, ...]], ...]:
    """The resamples as ready-made pickers: a power study asks for the same ones a thousand times."""
    stream = SplitMix64(seed)
    return tuple(itemgetter(*(stream.below(size) for _ in range(size))) for _ in range(resamples))


def _mixed(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
