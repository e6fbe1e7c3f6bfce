"""From a named query and one variant of it to numbers: what is asked, and what the answer is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.metrics.client import Prometheus
from controlplane.metrics.histogram import quantile, same_everywhere
from controlplane.metrics.named import Kind, Query, Variant
from controlplane.metrics.promql import PART, Reach, buckets, gauge, series_by_bound, summed, term, together

Labels = tuple[tuple[str, str], ...]  # sorted pairs
BUCKETS_DIFFER = "bucket-sets-differ"
BELOW_FIRST_BOUND = "below-first-bound"
NOT_A_NUMBER = "not-a-number"


@dataclass(frozen=True, slots=True)
class Scope:
    """The series that a query is about: `matchers` select them, `by` are the label names kept apart, `pod`
    names a pod. Gauges count only from samples that are not older than `not_before`."""

    prefix: str
    matchers: str
    by: tuple[str, ...]
    pod: str
    reach: Reach
    at: float
    not_before: float


@dataclass(frozen=True, slots=True)
class Number:
    """`value` None: nothing happened (`idle`), it is not told apart (`hidden`), or it cannot be said. `count`:
    samples behind it, None for a gauge. `stat` is what the number is; it differs from what was asked for where
    that could not be had. `bounds` are the finite bounds of the buckets that a quantile comes from."""

    stat: str
    value: float | None
    count: float | None
    idle: bool = False
    hidden: bool = False
    at_least: bool = False
    bounds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Numbers by labels (absent: the source gave nothing for them) and by stat as asked for."""

    numbers: Mapping[Labels, Mapping[str, Number]]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Parts:
    """What came for one set of labels."""

    values: dict[str, float | None] = field(default_factory=dict)
    buckets: dict[float, float] = field(default_factory=dict)
    series: dict[float, float] = field(default_factory=dict)


def evaluate(
    client: Prometheus, query: Query, variant: Variant, scope: Scope, stats: Sequence[str]
) -> Evaluated:
    """Ask once, at one moment, for everything that the stats need. Raises MetricsError."""
    answer = client.instant(together(parts_of(query, variant, scope)), scope.at)
    found: dict[Labels, _Parts] = {}
    for series in answer.series:
        labels = {name: text for name, text in series.labels.items() if name not in (PART, "le")}
        parts = found.setdefault(tuple(sorted(labels.items())), _Parts())
        part = series.labels[PART]
        if part in ("bucket", "series"):
            bound, into = float(series.labels["le"]), parts.buckets if part == "bucket" else parts.series
            # The same bound may be spelled 1 and 1.0 by two engines.
            into[bound] = into.get(bound, 0.0) + (series.value or 0.0)
        else:
            parts.values[part] = series.value
    numbers = {labels: _numbers(query, variant, parts, stats) for labels, parts in found.items()}
    return Evaluated(numbers, (*answer.warnings,))


def parts_of(query: Query, variant: Variant, scope: Scope) -> dict[str, str]:
    """The expressions that a query is made of, by name."""
    by, reach = scope.by, scope.reach

    def series(wanted: str = "", suffix: str = "") -> str:
        return term(scope.prefix, scope.matchers, variant.top, suffix, wanted)

    match query.kind:
        case Kind.SUM | Kind.MEAN | Kind.PER_POD | Kind.PEAK:
            text = gauge(
                query.kind,
                series(),
                by,
                not_before=scope.not_before,
                window_s=reach.window_s,
                pod=scope.pod,
            )
            return {"value": text}
        case Kind.RATIO:
            below = [term(scope.prefix, scope.matchers, bottom) for bottom in variant.bottom]
            bottoms = {f"bottom{index}": summed(each, reach, by) for index, each in enumerate(below)}
            return {"top": summed(series(), reach, by), **bottoms}
        case Kind.HISTOGRAM:
            return {
                "bucket": buckets(series(suffix="_bucket"), reach, by),
                "series": series_by_bound(series(suffix="_bucket"), reach, by),
                "sum": summed(series(suffix="_sum"), reach, by),
            }
        case _:
            return {"value": summed(series(), reach, by)}


def text_of(query: Query, variant: Variant, scope: Scope, stat: str) -> str:
    """One query that gives the number by itself, at `scope.at`, to be looked at with other tools."""
    parts = parts_of(query, variant, scope)
    if query.kind is Kind.RATIO:
        below = " + ".join(f"({text})" for name, text in parts.items() if name != "top")
        text = f"({parts['top']}) / (({below}) > 0)"
    elif query.kind is Kind.HISTOGRAM:
        inf = term(scope.prefix, scope.matchers, variant.top, "_bucket", 'le="+Inf"')
        count = summed(inf, scope.reach, scope.by)
        if stat == "count":
            return count
        text = f"({parts['sum']}) / (({count}) > 0)"
        if stat != "mean":
            text = f"histogram_quantile({share_of(stat):g}, {parts['bucket']})"
    else:
        text = parts["value"]
    return text if variant.scale == 1 else f"{variant.scale:g} * ({text})"


def share_of(stat: str) -> float:
    """0.95 for `p95`, 0.999 for `p99.9`. Raises ValueError for what is no quantile."""
    share = float(stat[1:]) / 100 if stat.startswith("p") else math.nan
    if not 0 < share < 1:
        raise ValueError(f"{stat!r} is no quantile: p50, p99.9, …")
    return share


def _numbers(query: Query, variant: Variant, parts: _Parts, stats: Sequence[str]) -> dict[str, Number]:
    if query.kind is Kind.HISTOGRAM:
        return {stat: _of_histogram(variant, parts, stat) for stat in stats}
    if query.kind is Kind.RATIO:
        return {"value": _of_ratio(variant, parts)}
    value = parts.values.get("value")
    if value is None:
        return {"value": Number("value", None, None, notes=(NOT_A_NUMBER,))}
    counted = value if query.kind is Kind.COUNT else None
    return {"value": Number("value", value * variant.scale, counted)}


def _of_ratio(variant: Variant, parts: _Parts) -> Number:
    bottoms = [value for name, value in parts.values.items() if name != "top" and value is not None]
    if not bottoms:
        return Number("value", None, None, notes=(NOT_A_NUMBER,))
    below = sum(bottoms)
    if "top" not in parts.values and not variant.born_late:
        # Made at start in every version that counts it: its absence is no zero.
        return Number("value", None, below, hidden=True)
    if below <= 0:
        return Number("value", None, 0.0, idle=True)
    return Number("value", (parts.values.get("top") or 0.0) / below * variant.scale, below)


def _of_histogram(variant: Variant, parts: _Parts, stat: str) -> Number:
    count = parts.buckets.get(math.inf, 0.0)
    if stat == "count":
        return Number(stat, count, count)
    if count <= 0:
        return Number(stat, None, 0.0, idle=True)
    mean = Number("mean", (parts.values.get("sum") or 0.0) / count * variant.scale, count)
    if stat == "mean":
        return mean
    if not same_everywhere(parts.series):
        return Number("mean", mean.value, count, notes=(BUCKETS_DIFFER,))
    found = quantile(parts.buckets, share_of(stat))
    if found is None:
        return Number("mean", mean.value, count, notes=(BUCKETS_DIFFER,))
    return Number(
        stat,
        found.value * variant.scale,
        count,
        at_least=found.at_least,
        bounds=tuple(bound * variant.scale for bound in sorted(parts.buckets) if bound < math.inf),
        notes=(BELOW_FIRST_BOUND,) if found.at_most else (),
    )
