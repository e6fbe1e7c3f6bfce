"""Numbers that the router of a pool tells."""

from __future__ import annotations

from controlplane.metrics.asked import Asked, Place, absent, present
from controlplane.metrics.endpoints import read_attempts
from controlplane.metrics.engines import reach_of
from controlplane.metrics.evaluate import Number, Scope, evaluate
from controlplane.metrics.measured import Measured, State
from controlplane.metrics.named import Kind, Query, Variant
from controlplane.metrics.survey import ROUTER, Survey, Target, prefix_for
from controlplane.metrics.variants import choose_variant, counts_as_zero, why_not_exposed


def read_router(asked: Asked, survey: Survey, engines: Survey | None, query: Query) -> list[Measured]:
    """One named number of the router, by the labels that the query keeps apart. `engines` is the look at the
    set's pods, for numbers that are joined to them. Raises MetricsError."""
    target = survey.targets.get(ROUTER)
    if target is None or target.newest is None:
        return absent(asked, query, Place(), State.NO_DATA, "No pod of this router is scraped.")
    variant = choose_variant(query, engine=target.engine, there=target.metrics)
    if variant is not None:
        scope, notes = _scope(asked, query, variant, target)
        if query.kind is Kind.ATTEMPTS:
            return read_attempts(asked, engines, query, variant, target, scope)
        return _evaluated(asked, query, variant, target, scope, notes)
    unborn = counts_as_zero(query, engine=target.engine, there=target.metrics)
    if unborn is None:
        reason = why_not_exposed(query, engine=target.engine, version="")
        return absent(asked, query, Place(), State.NOT_EXPOSED, reason, target)
    return _nothing_yet(asked, query, unborn, target)


def _scope(asked: Asked, query: Query, variant: Variant, target: Target) -> tuple[Scope, tuple[str, ...]]:
    reach, notes = reach_of([target], at=asked.at, window_s=asked.window_s, since=0.0)
    scope = Scope(
        prefix=prefix_for(variant.engine, asked.source),
        matchers=asked.router_matchers(),
        by=query.by,
        pod=asked.source.labels["pod"],
        reach=reach,
        at=asked.at,
        not_before=asked.at - asked.window_s,
    )
    return scope, notes


def _evaluated(
    asked: Asked, query: Query, variant: Variant, target: Target, scope: Scope, notes: tuple[str, ...]
) -> list[Measured]:
    answer = evaluate(asked.client, query, variant, scope, asked.stats_of(query))
    found: list[Measured] = []
    for pairs, numbers in sorted(answer.numbers.items()):
        labels = dict(pairs)
        place = _place(asked, labels.pop("revision", ""))
        if place.started_at is not None and (target.newest or 0.0) < place.started_at:
            continue  # said before this incarnation began, of an earlier one
        found += present(
            asked,
            query,
            place,
            variant=variant,
            scope=scope,
            numbers=numbers,
            target=target,
            labels=labels,
            notes=notes,
            warnings=answer.warnings,
        )
    if "revision" in query.by:
        return found + _revisions_left_out(asked, query, target, {one.revision for one in found})
    reason = "It is exposed, but has not been scraped often enough in this time."
    return found or absent(asked, query, Place(), State.NO_DATA, reason, target)


def _nothing_yet(asked: Asked, query: Query, variant: Variant, target: Target) -> list[Measured]:
    """Counters that appear with their first event have not appeared."""
    scope, notes = _scope(asked, query, variant, target)
    zero = {stat: _unborn(query, stat) for stat in asked.stats_of(query)}
    places = [Place()]
    if query.kind is Kind.ATTEMPTS and asked.revisions:
        places = [_place(asked, each.revision) for each in asked.revisions]
    found: list[Measured] = []
    for place in places:
        found += present(
            asked,
            query,
            place,
            variant=variant,
            scope=scope,
            numbers=zero,
            target=target,
            labels={},
            notes=notes,
        )
    return found


def _unborn(query: Query, stat: str) -> Number:
    """A counter without its first event: zero events, and so no ratio, quantile or mean."""
    if query.kind in (Kind.RATIO, Kind.HISTOGRAM) and stat != "count":
        return Number(stat, None, 0.0, idle=True)
    return Number(stat, 0.0, None if query.kind in (Kind.SUM, Kind.MEAN) else 0.0)


def _place(asked: Asked, revision: str) -> Place:
    known = {one.revision: one for one in asked.revisions}
    if revision not in known:
        return Place("", revision)
    return Place("", revision, known[revision].started_at, known[revision].version)


def _revisions_left_out(asked: Asked, query: Query, target: Target, shown: set[str]) -> list[Measured]:
    found: list[Measured] = []
    for incarnation in asked.revisions:
        if incarnation.revision not in shown:
            place = Place("", incarnation.revision, incarnation.started_at)
            reason = "The router knows no pod of this revision."
            found += absent(asked, query, place, State.NO_DATA, reason, target)
    return found
