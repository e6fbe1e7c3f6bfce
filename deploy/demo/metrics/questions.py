"""Parameters of the HTTP API, and the questions that they make."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from deploy.demo.metrics import answers
from deploy.demo.metrics.errors import BadData
from deploy.demo.metrics.evaluation import LOOKBACK_MS, Question
from deploy.demo.metrics.expressions import MATRIX, SCALAR, STRING, VECTOR, Node, read
from deploy.demo.metrics.metric import EMPTY, Metric
from deploy.demo.metrics.store import Store

Parameters = Mapping[str, str]
_MOST_STEPS = 11_000
_LIMIT_S = 120.0
_UNITS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in ("y", "w", "d", "h", "m", "s", "ms")))
_ORDER = ("y", "w", "d", "h", "m", "s", "ms")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def ask_instant(store: Store, parameters: Parameters, now: float) -> answers.Json:
    """The answer to a query at one moment. Raises BadData, Execution, TimedOut."""
    at = moment(parameters, "time", now)
    node = _expression(parameters)
    question = _question(store, parameters, at, at)
    value = question.value(node, at)
    data = answers.instant(value, at)
    if node.kind == MATRIX and not data["result"]:
        data = answers.matrix(())
    return answers.success(data, question.warnings, question.infos)


def ask_range(store: Store, parameters: Parameters) -> answers.Json:
    """The answer to a query at every step of a range. Raises BadData, Execution, TimedOut."""
    start, end = moment(parameters, "start"), moment(parameters, "end")
    if end < start:
        raise invalid("end", "end timestamp must not be before start time")
    step = _duration(parameters.get("step", ""), "step")
    if step <= 0:
        raise invalid(
            "step", "zero or negative query resolution step widths are not accepted. Try a positive integer"
        )
    if (end - start) // step > _MOST_STEPS:
        raise BadData(
            "exceeded maximum resolution of 11,000 points per timeseries. "
            "Try decreasing the query resolution (?step=XX)"
        )
    node = _expression(parameters)
    if node.kind not in (SCALAR, VECTOR):
        kind = {MATRIX: "range vector", STRING: "string"}[node.kind]
        raise invalid(
            "query", f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
        )
    question = _question(store, parameters, start, end)
    found: dict[Any, tuple[Metric, list[tuple[int, float]]]] = {}
    for at in range(start, end + 1, step):
        value: Any = question.value(node, at)
        for metric, one in value if isinstance(value, list) else [(EMPTY, value)]:
            found.setdefault(metric.key, (metric, []))[1].append((at, one))
    return answers.success(answers.matrix(found.values()), question.warnings, question.infos)


def moment(parameters: Parameters, name: str, default: float | None = None) -> int:
    """A moment in unix milliseconds; ``default`` (unix seconds) where it is left out. Raises BadData."""
    text = parameters.get(name, "")
    if not text and default is not None:
        return math.floor(1000 * default)
    if _NUMBER.fullmatch(text) and abs(float(text)) < 1e12:
        part, whole = math.modf(float(text))
        # Rounded to milliseconds, then cut off after nanoseconds: x.57 is 569 ms there, and so it is here.
        return 1000 * int(whole) + int(math.floor(1000 * part + 0.5) / 1000 * 1e9) // 1_000_000
    try:
        given = dt.datetime.fromisoformat(text)
    except ValueError:
        given = None
    if given is None or given.tzinfo is None:
        raise invalid(name, f"cannot parse {answers_quoted(text)} to a valid timestamp")
    return (given - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)


def invalid(name: str, problem: str) -> BadData:
    """The refusal of one parameter."""
    return BadData(f'invalid parameter "{name}": {problem}')


def answers_quoted(text: str) -> str:
    """As error texts show what was given."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _expression(parameters: Parameters) -> Node:
    try:
        return read(parameters.get("query", ""))
    except BadData as problem:
        raise invalid("query", str(problem)) from None


def _question(store: Store, parameters: Parameters, start: int, end: int) -> Question:
    limit = _LIMIT_S
    if text := parameters.get("timeout", ""):
        limit = min(limit, _duration(text, "timeout") / 1000)
        if limit <= 0:
            raise invalid("timeout", "timeout must be positive")
    lookback = LOOKBACK_MS
    if text := parameters.get("lookback_delta", ""):
        lookback = _duration(text, "lookback_delta") or LOOKBACK_MS
    return Question(store, start, end, lookback=lookback, ends=time.monotonic() + limit)


def _duration(text: str, name: str) -> int:
    """Milliseconds, of a number of seconds or of units such as 1h30m."""
    if _NUMBER.fullmatch(text) and abs(float(text)) < 9.2e9:
        return math.floor(1000 * float(text))
    found = _DURATION.fullmatch(text)
    if not text or not found:
        raise invalid(name, f"cannot parse {answers_quoted(text)} to a valid duration")
    return sum(int(count) * _UNITS[unit] for count, unit in zip(found.groups(), _ORDER, strict=True) if count)
