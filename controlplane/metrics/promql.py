"""Texts of queries. Always: rate first (here `increase`), then sum, then anything else; label values are escaped.

Counts of events are made from each series in the way its age asks for. The first scrape of a new pod is no increase:
what was counted before it (the slow first handshakes, the first failures) is invisible to `rate` and `increase`. So a
pod younger than two windows is read by its raw values since its start, unless its process was restarted meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.metrics.named import Kind, Term

PART = "part"
_AGGREGATE = {Kind.SUM: "sum", Kind.MEAN: "avg", Kind.PER_POD: "avg", Kind.PEAK: "max"}


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a count goes: `window_s` seconds. Series without a sample `young_s` seconds ago are young
    and read raw. None: all are (a whole incarnation younger than two windows). 0: none is (Prometheus'
    own memory does not reach back so far, so it cannot tell). `exact`: from the first to the last scrape in the
    window, and nothing added for its ends. Prometheus adds less for a series that was near zero, so over few
    scrapes buckets of one histogram, or shares of one router, would not fit together any more."""

    window_s: int
    young_s: int | None
    exact: bool = False


def quote(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def one_of(values: Iterable[str]) -> str:
    """A string literal of the regular expression that matches exactly these values."""
    return quote("|".join(re.escape(value) for value in values))


def selector(name: str, matchers: str, where: str = "") -> str:
    """The series of one metric."""
    return f"{name}{{{','.join(part for part in (matchers, where) if part)}}}"


def pods_of(workload: str) -> str:
    """A string literal of the regular expression for the pods of a Deployment or StatefulSet."""
    return quote(f"{re.escape(workload)}(-[a-z0-9]+){{1,2}}")


def matchers_of(labels: Mapping[str, str]) -> str:
    """Equality matchers, for values that are not empty."""
    return ",".join(f"{name}={quote(value)}" for name, value in labels.items() if value)


def term(prefix: str, matchers: str, wanted: Term, suffix: str = "", where: str = "") -> str:
    """The series of a term; `suffix` is `_bucket` or `_sum` of a histogram."""
    fixed = ",".join(part for part in (wanted.where, where) if part)
    return selector(f"{prefix}{wanted.name}{suffix}", matchers, fixed)


def total(series: str, reach: Reach) -> str:
    """Events of each series within the reach."""
    window = f"{series}[{reach.window_s}s]"
    increase = f"increase({window})"
    restarted, raw = f"(resets({window}) > 0)", f"last_over_time({window})"
    if reach.exact:
        grown = f"(max_over_time({window}) - min_over_time({window}))"
        whole = f"(resets({window}) == 0) and (count_over_time({window}) > 1)"
        increase = f"(({grown} and {whole}) or ({increase} and {restarted}))"
    if reach.young_s == 0:
        return increase
    if reach.young_s is None:
        return f"(({increase} and {restarted}) or {raw})"
    old = f"({series} offset {reach.young_s}s)"
    return f"(({increase} and ({old} or {restarted})) or ({raw} unless {old}))"


def summed(series: str, reach: Reach, by: Iterable[str]) -> str:
    """Events within the reach by labels."""
    return f"sum by ({', '.join(by)}) ({total(series, reach)})"


def gauge(kind: Kind, series: str, by: Sequence[str], *, not_before: float, window_s: int, pod: str) -> str:
    """A gauge by labels: now, from samples that are not older than a moment, or its highest in the window.
    `pod` is the label that names a pod."""
    if kind is Kind.PEAK:
        inner = f"max_over_time({series}[{window_s}s])"
    else:
        inner = f"({series} and (timestamp({series}) >= {not_before:.3f}))"
    if kind is Kind.PER_POD:
        inner = f"sum by ({', '.join((*by, pod))}) ({inner})"
    return f"{_AGGREGATE[kind]} by ({', '.join(by)}) ({inner})"


def buckets(series: str, reach: Reach, by: Iterable[str]) -> str:
    """Cumulative counts of a histogram by upper bound and labels."""
    return summed(series, reach, ("le", *by))


def series_by_bound(series: str, reach: Reach, by: Iterable[str]) -> str:
    """How many series have each upper bound."""
    return f"count by ({', '.join(('le', *by))}) (last_over_time({series}[{reach.window_s}s]))"


def together(parts: Mapping[str, str]) -> str:
    """Several expressions as one question, answered at one moment; the label `part` tells their results
    apart."""
    return " or ".join(
        f'label_replace({expression}, "{PART}", "{name}", "", "")' for name, expression in parts.items()
    )


def names_there(names: Iterable[str], matchers: str, by: Iterable[str]) -> str:
    """How many series of each of these metrics there are, by labels; the name is in the label `metric`."""
    several = f"{{__name__=~{one_of(names)}{',' if matchers else ''}{matchers}}}"
    named = f'label_replace({several}, "metric", "$1", "__name__", "(.+)")'
    return f"count by ({', '.join(('metric', *by))}) ({named})"


def by_endpoint(series: str, reach: Reach, *, endpoint: str, namespace: str, pod: str) -> str:
    """The router's events by pod: its names of endpoints carry a rank where a pod has several."""
    pattern = quote("(.*?)(?:-rank-[0-9]+)?")
    named = f'label_replace({total(series, reach)}, "{pod}", "$1", "{endpoint}", {pattern})'
    return f"sum by ({namespace}, {pod}) ({named})"


def pod_labels(anchor: str, window_s: int, *, key: Iterable[str], labels: Iterable[str]) -> str:
    """1 for each pod of the window with its labels; one set of labels for each pod, or a join would fail."""
    keys = ", ".join(key)
    seen = f"group by ({keys}, {', '.join(labels)}) (last_over_time({anchor}[{window_s}s]))"
    return f"topk by ({keys}) (1, {seen})"
