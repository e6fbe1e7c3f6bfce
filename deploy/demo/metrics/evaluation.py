"""The value of an expression at one moment, as Prometheus would compute it from the same samples.

Ranges and look-back are open on their left side. Names of metrics are dropped where a value is no longer the metric's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from deploy.demo.metrics.aggregation import aggregate
from deploy.demo.metrics.errors import Execution, TimedOut
from deploy.demo.metrics.expressions import (
    Aggregate,
    Binary,
    Call,
    Match,
    Node,
    Number,
    Select,
    Span,
    Text,
)
from deploy.demo.metrics.functions import OVER_TIME, histogram_quantile, label_replace
from deploy.demo.metrics.metric import NAME, Metric
from deploy.demo.metrics.operators import of_scalars, of_vector_and_scalar, of_vectors
from deploy.demo.metrics.store import Series, Store, Window

LOOKBACK_MS = 300_000
Vector = list[tuple[Metric, float]]
Value = float | str | Vector | list[Window]  # never changed once made


@dataclass
class Question:
    """One question: its first and last moment (unix milliseconds), how far back a sample may lie, when it must be
    done (seconds of the monotonic clock), and what has to be said of the answer."""

    store: Store
    start: int
    end: int
    lookback: int = LOOKBACK_MS
    ends: float = float("inf")
    warnings: dict[str, None] = field(default_factory=dict)
    infos: dict[str, None] = field(default_factory=dict)
    _found: dict[tuple[Match, ...], list[Series]] = field(default_factory=dict)
    # What several parts of an expression ask of the same moment.
    _known_at: int | None = None
    _known: dict[Node, Value] = field(default_factory=dict)

    def value(self, node: Node, at: int) -> Value:
        """The value of a node at a moment: a number, a text, a vector, or samples of a range.

        Raises Execution and TimedOut.
        """
        if time.monotonic() > self.ends:
            raise TimedOut("query timed out in expression evaluation")
        match node:
            case Number(value) | Text(value):
                return value
            case Aggregate():
                param = None if node.param is None else cast(float, self.value(node.param, at))
                return aggregate(node, param, self._vector(node.inner, at))
            case Binary():
                return self._binary(node, at)
        if at != self._known_at:
            self._known_at, self._known = at, {}
        if node not in self._known:
            self._known[node] = self._asked(node, at)
        return self._known[node]

    def _asked(self, node: Select | Span | Call, at: int) -> Value:
        match node:
            case Select():
                return [(series.metric, value) for series, value, _ in self._newest(node, at)]
            case Span():
                return list(self._windows(node, at))
            case Call():
                return self._call(node, at)

    def _windows(self, span: Span, at: int) -> Iterator[Window]:
        """The samples of each series in the range that ends at a moment."""
        end = self._moment(span.select, at)
        for series in self._series(span.select):
            timeline = series.timeline
            first, last = timeline.after(end - span.range), timeline.until(end)
            if first <= last and (runs := series.runs(first, last)):
                yield Window(series, runs)

    def _vector(self, node: Node, at: int) -> Vector:
        return cast(Vector, self.value(node, at))

    def _moment(self, select: Select, at: int) -> int:
        match select.at:
            case None:
                fixed = at
            case "start":
                fixed = self.start
            case "end":
                fixed = self.end
            case _:
                fixed = cast(int, select.at)
        return fixed - select.offset

    def _newest(self, select: Select, at: int) -> Iterator[tuple[Series, float, int]]:
        """Series with their newest value and its moment."""
        end = self._moment(select, at)
        for series in self._series(select):
            timeline = series.timeline
            index = timeline.until(end)
            if timeline.has(index) and (moment := timeline.time(index)) > end - self.lookback:
                value = series.at(index)
                if value is not None:
                    yield series, value, moment

    def _series(self, select: Select) -> list[Series]:
        found = self._found.get(select.matches)
        if found is None:
            found = self._found[select.matches] = matching_series(self.store, select.matches)
        return found

    def _call(self, node: Call, at: int) -> float | Vector:
        if node.name == "time":
            return at / 1000
        if node.name == "timestamp":
            inner = node.args[0]
            if isinstance(inner, Select):
                moments = self._newest(inner, at)
                return unique([(series.metric.nameless(), when / 1000) for series, _, when in moments])
            return unique([(metric.nameless(), at / 1000) for metric, _ in self._vector(inner, at)])
        if node.name == "label_replace":
            texts = [cast(Text, one).value for one in node.args[1:]]
            return unique(label_replace(self._vector(node.args[0], at), *texts))
        if node.name == "histogram_quantile":
            share = cast(float, self.value(node.args[0], at))
            vector = self._vector(node.args[1], at)
            return unique(histogram_quantile(share, vector, self.warnings, self.infos))
        return self._over_time(node, at)

    def _over_time(self, node: Call, at: int) -> Vector:
        span = cast(Span, node.args[0])
        end = self._moment(span.select, at)
        function, keeps_name = OVER_TIME[node.name]
        found: Vector = []
        for window in cast(list[Window], self.value(span, at)):
            value = function(window, end - span.range, end)
            if value is not None:
                metric = window.series.metric
                found.append((metric if keeps_name else metric.nameless(), value))
        return unique(found)

    def _binary(self, node: Binary, at: int) -> float | Vector:
        left, right = self.value(node.left, at), self.value(node.right, at)
        if isinstance(left, list) and isinstance(right, list):
            found = of_vectors(node, cast(Vector, left), cast(Vector, right))
        elif isinstance(left, list):
            found = of_vector_and_scalar(node, cast(Vector, left), cast(float, right), swapped=False)
        elif isinstance(right, list):
            found = of_vector_and_scalar(node, cast(Vector, right), cast(float, left), swapped=True)
        else:
            return of_scalars(node.sign, cast(float, left), cast(float, right))
        return unique(found)


def matching_series(store: Store, matches: tuple[Match, ...]) -> list[Series]:
    """The series that all matchers let through, name by name in the order of their first samples."""
    named = next((one for one in matches if one.label == NAME and one.pattern is None and one.wanted), None)
    names = [named.value] if named else list(store.names)
    on_names = [one for one in matches if one.label == NAME]
    others = [one for one in matches if one.label != NAME]
    found: list[Series] = []
    for name in names:
        if all(one.holds(name) for one in on_names):
            found += [
                series
                for series in store.names.get(name, {}).values()
                if all(one.holds(series.metric.labels.get(one.label, "")) for one in others)
            ]
    return found


def unique(vector: Vector) -> Vector:
    """The vector, unless two of its elements have the same labels. Raises Execution."""
    if len({metric.key for metric, _ in vector}) != len(vector):
        raise Execution("vector cannot contain metrics with the same labelset")
    return vector
