"""Functions over samples of a range, over labels, and over the buckets of a histogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from deploy.demo.metrics.aggregation import highest, lowest
from deploy.demo.metrics.errors import Execution
from deploy.demo.metrics.metric import NAME, Metric, quoted
from deploy.demo.metrics.patterns import BadPattern, compile_pattern, expand
from deploy.demo.metrics.store import Window

Vector = list[tuple[Metric, float]]
OfWindow = Callable[[Window, int, int], float | None]
_TOLERANCE = 1e-12  # counts of buckets that differ by less are equal
_SMALLEST = 2.2250738585072014e-308
_LE = "le"


def _increase(window: Window, start: int, end: int) -> float | None:
    """How much a counter rose in a range of milliseconds, as if it had been seen from one end to the other.

    A lower value than the one before means that it began anew at zero. The samples' own slope is carried on to the
    ends of the range where a sample is near (1.1 times their mean distance), and half a distance beyond the samples
    where none is; never to before the moment at which the counter would have been zero.
    """
    if window.count < 2:
        return None
    first = window.runs[0][2]
    risen = window.runs[-1][2] - first + _before_resets(window)
    sampled = (window.last_at - window.first_at) / 1000
    distance = sampled / (window.count - 1)
    to_start, to_end = (window.first_at - start) / 1000, (end - window.last_at) / 1000
    if to_start >= 1.1 * distance:
        to_start = distance / 2
    if risen > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / risen))
    if to_end >= 1.1 * distance:
        to_end = distance / 2
    return risen * ((sampled + to_start + to_end) / sampled)


def _rate(window: Window, start: int, end: int) -> float | None:
    risen = _increase(window, start, end)
    return None if risen is None else risen / ((end - start) / 1000)


def _before_resets(window: Window) -> float:
    """What a counter had reached, summed over its resets."""
    before, found = window.runs[0][2], 0.0
    for _, _, value in window.runs:
        if value < before:
            found += before
        before = value
    return found


def _resets(window: Window, start: int, end: int) -> float:
    values = [value for _, _, value in window.runs]
    return float(sum(later < before for before, later in zip(values, values[1:], strict=False)))


OVER_TIME: Mapping[str, tuple[OfWindow, bool]] = {
    "increase": (_increase, False),
    "rate": (_rate, False),
    "resets": (_resets, False),
    "max_over_time": (lambda window, *_: highest([value for _, _, value in window.runs]), False),
    "min_over_time": (lambda window, *_: lowest([value for _, _, value in window.runs]), False),
    "count_over_time": (lambda window, *_: float(window.count), False),
    "last_over_time": (lambda window, *_: window.runs[-1][2], True),
}
"""(function of a window and its range in unix milliseconds, whether the metric keeps its name), by name."""


def label_replace(vector: Vector, target: str, template: str, source: str, pattern: str) -> Vector:
    """Elements whose label ``source`` matches get the label ``target``, or lose it where it would be empty.

    Raises Execution for a pattern or a name of a label that cannot be.
    """
    if not target:
        raise Execution("invalid destination label name in label_replace(): ")
    try:
        compiled = compile_pattern(pattern)
    except BadPattern as problem:
        raise Execution(f"invalid regular expression in label_replace(): {problem}") from None
    found: Vector = []
    for metric, value in vector:
        match = compiled.fullmatch(metric.labels.get(source, ""))
        found.append((metric.replaced({target: expand(template, match)}) if match else metric, value))
    return found


def histogram_quantile(
    share: float, vector: Vector, warnings: dict[str, None], infos: dict[str, None]
) -> Vector:
    """The quantile of each histogram whose cumulative buckets are in the vector."""
    if not 0 <= share <= 1:
        warnings[f"PromQL warning: quantile value should be between 0 and 1, got {share:g}"] = None
    groups: dict[frozenset[tuple[str, str]], tuple[Metric, dict[float, float]]] = {}
    for metric, count in vector:
        bound = _bound(metric.labels.get(_LE, ""))
        if bound is None:
            said = quoted(metric.labels.get(_LE, ""))
            warnings[
                f"PromQL warning: bucket label {quoted(_LE)} is missing or has a malformed value of {said}"
            ] = None
            continue
        key = frozenset(pair for pair in metric.key if pair[0] != _LE)
        found = groups.setdefault(key, (metric.without((NAME, _LE)), {}))[1]
        found[bound] = found.get(bound, 0.0) + count
    return [(metric, _quantile(share, buckets, infos)) for metric, buckets in groups.values()]


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) or "_" in text else bound


def _quantile(share: float, buckets: Mapping[float, float], infos: dict[str, None]) -> float:
    if math.isnan(share):
        return math.nan
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return math.nan
    counts = _rising([buckets[bound] for bound in bounds], infos)
    if counts[-1] == 0:
        return math.nan
    rank = share * counts[-1]
    place = next((index for index, count in enumerate(counts[:-1]) if count >= rank), len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    if inside == 0:
        return math.nan  # share 0 of a histogram that is empty below
    return low + (bounds[place] - low) * ((rank - below) / inside)


def _rising(counts: list[float], infos: dict[str, None]) -> list[float]:
    """Counts that never fall: one that does is raised to the one before, and tiny differences are none."""
    found = counts[:1]
    for count in counts[1:]:
        before = found[-1]
        if count != before and not _almost(before, count) and count < before:
            infos["PromQL info: input to histogram_quantile needed to be fixed for monotonicity"] = None
        found.append(before if _almost(before, count) or count < before else count)
    return found


def _almost(one: float, other: float) -> bool:
    if one == other:
        return True
    size, distance = abs(one) + abs(other), abs(one - other)
    if one == 0 or other == 0 or size < _SMALLEST:
        return distance < _TOLERANCE * _SMALLEST
    return distance / min(size, 1.7976931348623157e308) < _TOLERANCE
