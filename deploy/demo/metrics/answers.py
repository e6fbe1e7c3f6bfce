"""How Prometheus writes its answers: numbers as texts, times as seconds, errors with their class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from deploy.demo.metrics.evaluation import Vector
from deploy.demo.metrics.metric import Metric
from deploy.demo.metrics.store import Window

Json = dict[str, Any]
Points = Sequence[tuple[int, float]]


def number(value: float) -> str:
    """A value: the shortest digits that give it back, without an exponent from 1e-6 up to 1e21."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    if "e" in text and (value == 0 or 1e-6 <= abs(value) < 1e21):
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


def seconds(at: int) -> int | float:
    """Unix milliseconds as seconds."""
    return at // 1000 if at % 1000 == 0 else at / 1000


def point(at: int, value: float | str) -> list[Any]:
    """One sample."""
    return [seconds(at), value if isinstance(value, str) else number(value)]


def instant(value: float | str | Vector | list[Window], at: int) -> Json:
    """The data of an answer to an instant query."""
    if isinstance(value, list):
        if value and isinstance(value[0], Window):
            return matrix((one.series.metric, list(one.points())) for one in value if isinstance(one, Window))
        found = [{"metric": metric.labels, "value": point(at, one)} for metric, one in _vector(value)]
        return {"resultType": "vector", "result": found}
    return {"resultType": "string" if isinstance(value, str) else "scalar", "result": point(at, value)}


def matrix(series: Iterable[tuple[Metric, Points]]) -> Json:
    """The data of an answer that has samples of a range, in the order of the labels."""
    ordered = sorted(series, key=lambda one: sorted(one[0].labels.items()))
    found = [
        {"metric": metric.labels, "values": [point(at, value) for at, value in points]}
        for metric, points in ordered
    ]
    return {"resultType": "matrix", "result": found}


def success(data: Any, warnings: Iterable[str] = (), infos: Iterable[str] = ()) -> Json:
    """A whole answer."""
    said = {"warnings": list(warnings), "infos": list(infos)}
    return {"status": "success", "data": data} | {key: texts for key, texts in said.items() if texts}


def failure(kind: str, problem: str) -> Json:
    """An answer that says what is wrong."""
    return {"status": "error", "errorType": kind, "error": problem}


def _vector(value: list[Any]) -> Vector:
    return value
