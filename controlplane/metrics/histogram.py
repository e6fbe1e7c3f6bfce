"""Quantiles from cumulative buckets, as `histogram_quantile` computes them, and what such a number does not know.

Computed here because the guards need the buckets anyway: whether all series have the same ones, how many samples
there are, and whether the number is only a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantile:
    """`at_least`: the samples lie beyond the last finite bound, which is all that is known. `at_most`: they
    lie below the first bound, so `value` is a guess between 0 and it."""

    value: float
    at_least: bool
    at_most: bool


def quantile(buckets: Mapping[float, float], q: float) -> Quantile | None:
    """The q-quantile (0 < q < 1) of counts by upper bound, +Inf among the bounds; None without a sample,
    without +Inf, or without a finite bound.

    Linear inside a bucket, the first one beginning at 0 (if its bound is above). Counts that fall from one
    bound to the next (scrapes are not atomic) are raised to the one before.
    """
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return None
    counts: list[float] = []
    for bound in bounds:
        counts.append(max(buckets[bound], counts[-1] if counts else 0.0))
    if counts[-1] <= 0:
        return None
    rank = q * counts[-1]
    place = next((index for index, count in enumerate(counts) if count >= rank), len(counts) - 1)
    if place == len(bounds) - 1:
        return Quantile(bounds[-2], at_least=True, at_most=False)
    if place == 0 and bounds[0] <= 0:
        return Quantile(bounds[0], at_least=False, at_most=True)
    low, before = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - before
    value = low + (bounds[place] - low) * ((rank - before) / inside)
    return Quantile(value, at_least=value >= bounds[-2], at_most=place == 0)


def same_everywhere(series: Mapping[float, float]) -> bool:
    """Whether each bound is there in as many series as every other: sums over series with other bounds are
    no histogram. `series` counts the series by bound."""
    return len(set(series.values())) <= 1
