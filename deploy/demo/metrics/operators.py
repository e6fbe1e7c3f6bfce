"""Binary operators: between numbers, between a vector and a number, and between vectors that are matched by labels."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from functools import lru_cache

from deploy.demo.metrics.errors import Execution
from deploy.demo.metrics.expressions import COMPARISONS, SETS, Binary, Matching
from deploy.demo.metrics.metric import NAME, Metric

Vector = list[tuple[Metric, float]]


def divide(left: float, right: float) -> float:
    """As processors divide: by zero gives an infinity, or NaN."""
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
}
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def of_scalars(sign: str, left: float, right: float) -> float:
    """Of two numbers; a comparison gives 1 or 0."""
    if sign in COMPARISONS:
        return float(_COMPARED[sign](left, right))
    return _ARITHMETIC[sign](left, right)


def of_vector_and_scalar(node: Binary, vector: Vector, scalar: float, *, swapped: bool) -> Vector:
    """Of each element and a number. ``swapped``: the number stood on the left. A comparison keeps elements."""
    found: Vector = []
    for metric, value in vector:
        left, right = (scalar, value) if swapped else (value, scalar)
        if node.sign not in COMPARISONS:
            found.append((metric.nameless(), _ARITHMETIC[node.sign](left, right)))
        elif node.boolean:
            found.append((metric.nameless(), float(_COMPARED[node.sign](left, right))))
        elif _COMPARED[node.sign](left, right):
            found.append((metric, value))
    return found


def of_vectors(node: Binary, left: Vector, right: Vector) -> Vector:
    """Of the elements that match each other. Raises Execution where it is not clear which do."""
    key = _key_of(node.matching)
    if node.sign in SETS:
        return _set(node.sign, left, right, key)
    return _Matched(node, key).all(left, right)


@lru_cache(maxsize=256)
def _key_of(matching: Matching) -> Callable[[Metric], Hashable]:
    """What has to be equal of two elements."""
    if matching.on:
        names = matching.labels
        return lambda metric: tuple(metric.labels.get(name, "") for name in names)
    if not matching.labels:
        return lambda metric: metric.nameless().key
    gone = frozenset((*matching.labels, NAME))
    return lambda metric: frozenset(pair for pair in metric.key if pair[0] not in gone)


def _set(sign: str, left: Vector, right: Vector, key: Callable[[Metric], Hashable]) -> Vector:
    if sign == "or":
        there = {key(metric) for metric, _ in left}
        return left + [one for one in right if key(one[0]) not in there]
    there = {key(metric) for metric, _ in right}
    return [one for one in left if (key(one[0]) in there) is (sign == "and")]


class _Matched:
    """Arithmetic and comparisons between two vectors."""

    def __init__(self, node: Binary, key: Callable[[Metric], Hashable]) -> None:
        self.node = node
        self.matching = node.matching
        self.key = key

    def all(self, left: Vector, right: Vector) -> Vector:
        """Each element of the side that may have many, with its partner on the other."""
        swapped = self.matching.many == "right"
        many, one = (right, left) if swapped else (left, right)
        if not many or not one:
            return []
        partners = self._partners(one, "left" if swapped else "right")
        found: Vector = []
        taken: set[Hashable] = set()
        for metric, value in many:
            key = self.key(metric)
            if key not in partners:
                continue
            other, theirs = partners[key]
            result = self._metric(metric, other)
            self._once(taken, (key, result.key) if self.matching.many else key)
            pair = (theirs, value) if swapped else (value, theirs)
            kept = self._value(*pair)
            if kept is not None:
                found.append((result, kept))
        return found

    def _partners(self, vector: Vector, side: str) -> dict[Hashable, tuple[Metric, float]]:
        found: dict[Hashable, tuple[Metric, float]] = {}
        for metric, value in vector:
            key = self.key(metric)
            if key in found:
                two = ", ".join(sorted((metric.text(), found[key][0].text())))
                group = self._group(metric).text()
                raise Execution(
                    f"found duplicate series for the match group {group} on the {side} hand-side of the operation: "
                    f"[{two}];many-to-many matching not allowed: matching labels must be unique on one side"
                )
            found[key] = (metric, value)
        return found

    def _group(self, metric: Metric) -> Metric:
        labels = self.matching.labels
        return metric.only(labels) if self.matching.on else metric.without((NAME, *labels))

    def _once(self, taken: set[Hashable], key: Hashable) -> None:
        if key in taken:
            how = (
                "grouping labels must ensure unique matches"
                if self.matching.many
                else "many-to-one matching must be explicit (group_left/group_right)"
            )
            raise Execution(f"multiple matches for labels: {how}")
        taken.add(key)

    def _metric(self, metric: Metric, other: Metric) -> Metric:
        node, matching = self.node, self.matching
        if node.sign not in COMPARISONS or node.boolean:
            metric = metric.nameless()
        if not matching.many and (matching.on or matching.labels):
            labels = matching.labels
            metric = metric.only(labels) if matching.on else metric.without(labels)
        if matching.include:
            metric = metric.replaced({name: other.labels.get(name, "") for name in matching.include})
        return metric

    def _value(self, left: float, right: float) -> float | None:
        if self.node.sign not in COMPARISONS:
            return _ARITHMETIC[self.node.sign](left, right)
        holds = _COMPARED[self.node.sign](left, right)
        if self.node.boolean:
            return float(holds)
        return left if holds else None
