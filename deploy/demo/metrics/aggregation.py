"""Aggregations: one value, or a few elements, of each group of a vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from deploy.demo.metrics.errors import Execution
from deploy.demo.metrics.metric import NAME, Metric

if TYPE_CHECKING:
    from deploy.demo.metrics.expressions import Aggregate

Vector = list[tuple[Metric, float]]


def aggregate(node: Aggregate, param: float | None, vector: Vector) -> Vector:
    """The groups in the order of their first elements. Raises Execution for a parameter that is no number of
    elements."""
    groups: dict[Hashable, Vector] = {}
    key = _key_of(node)
    for element in vector:
        groups.setdefault(key(element[0]), []).append(element)
    if node.name == "topk":
        count = _whole(param)
        return [one for group in groups.values() for one in _highest(count, group)]
    of_values = _OF_VALUES[node.name]
    return [
        (_metric(node, group[0][0]), of_values([value for _, value in group])) for group in groups.values()
    ]


def _key_of(node: Aggregate) -> Callable[[Metric], Hashable]:
    names = node.labels
    if node.by:
        return lambda metric: tuple(metric.labels.get(name, "") for name in names)
    gone = frozenset((*names, NAME))
    return lambda metric: frozenset(pair for pair in metric.key if pair[0] not in gone)


def _metric(node: Aggregate, metric: Metric) -> Metric:
    return metric.only(node.labels) if node.by else metric.without((*node.labels, NAME))


def total(values: Sequence[float]) -> float:
    """The sum, without an error that grows with the number of values."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond what a float holds, or both infinities
        return float(sum(values))


def _mean(values: Sequence[float]) -> float:
    found = total(values) / len(values)
    if math.isinf(found) and all(map(math.isfinite, values)):
        return total([value / len(values) for value in values])
    return found


def highest(values: Sequence[float]) -> float:
    """The highest; NaN only where all are."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def lowest(values: Sequence[float]) -> float:
    """The lowest; NaN only where all are."""
    return min((value for value in values if not math.isnan(value)), default=math.nan)


_OF_VALUES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": total,
    "avg": _mean,
    "max": highest,
    "min": lowest,
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
}


def _whole(param: float | None) -> int:
    if param is None or math.isnan(param):
        raise Execution("Parameter value is NaN for topk")
    if not -(2.0**63) <= param < 2.0**63:
        raise Execution(f"Scalar value {param:g} overflows int64")
    return max(0, int(param))


def _highest(count: int, group: Vector) -> Vector:
    """The highest elements, of equals the first; NaN is below everything."""
    ranked = sorted(group, key=lambda one: -math.inf if math.isnan(one[1]) else one[1], reverse=True)
    numbers = [one for one in ranked if not math.isnan(one[1])]
    return (numbers + [one for one in group if math.isnan(one[1])])[:count]
