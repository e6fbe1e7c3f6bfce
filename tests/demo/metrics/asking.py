"""Questions to a store, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.metrics.evaluation import Question
from deploy.demo.metrics.expressions import read
from deploy.demo.metrics.store import Store

Points = Sequence[tuple[float, float | None]]


def told(*series: tuple[str, Points] | tuple[str, Points, Mapping[str, str]]) -> Store:
    """A store with series: name, (seconds, value or None for "it ended"), labels."""
    store = Store()
    for name, points, *labels in series:
        where = dict(labels[0]) if labels else {}
        store.append({"__name__": name, **where}, [(round(1000 * at), value) for at, value in points])
    return store


def ask(store: Store, expression: str, at: float) -> Any:
    """A number or a text, or the values of a vector by the labels' values in the order of their names."""
    moment = round(1000 * at)
    value = Question(store, moment, moment).value(read(expression), moment)
    if not isinstance(value, list):
        return value
    found = {}
    for metric, one in value:  # type: ignore[misc]  # no test asks for a range itself
        shown = [text for name, text in sorted(metric.labels.items())]
        found[" ".join(shown)] = one
    return found


def steady(
    per_s: float, *, first: float = 0.0, since: float = 0.0, until: float = 600.0, every: float = 15.0
) -> Points:
    """A counter that grows evenly."""
    return [(every * number, first + per_s * every * number) for number in range(int(until / every) + 1)]
