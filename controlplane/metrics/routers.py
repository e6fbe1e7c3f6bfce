"""Numbers that the router of a pool tells."""

from __future__ import annotations

from typing import Any

from controlplane.metrics.asked import Asked, Place, absent, present
from controlplane.metrics.endpoints import read_attempts
from controlplane.metrics.engines import reach_of
from controlplane.metrics.evaluate import Number, Scope, evaluate
from controlplane.metrics.measured import Measured, State
from controlplane.metrics.named import Kind, Query
from controlplane.metrics.survey import ROUTER, Survey, Target, prefix_for
from controlplane.metrics.variants import choose_variant, counts_as_zero, why_not_exposed


def read_router(asked: Asked, survey: Survey, engines: Survey | None, query: Query) -> list[Measured]:
    """One named number of the router, by the labels that the query keeps apart. `engines` is the look at the
    set's pods, for numbers that are joined to them. Raises MetricsError."""
    target = survey.targets.get(ROUTER)
    if target is None or target.newest is None:
        return absent(asked, query, Place(), State.NO_DATA, "No pod of this router is scraped.")
    variant = choose_variant(query, engine=target.engine, there=target.metrics)
    unborn = None if variant else counts_as_zero(query, engine=target.engine, there=target.metrics)
    if variant is None and unborn is None:
        reason = why_not_exposed(query, engine=target.engine, version="")
        return absent(asked, query, Place(), State.NOT_EXPOSED, reason, target)
    reach, notes = reach_of([target], at=asked.at, window_s=asked.window_s, since=0.0)
    chosen = variant or unborn
    assert chosen is not None
    scope = Scope(
        prefix=prefix_for(chosen.engine, asked.source),
        matchers=asked.router_matchers(),
        by=query.by,
        pod=asked.source.labels["pod"],
        reach=reach,
        at=asked.at,
        not_before=asked.at - asked.window_s,
    )
    shown: dict[str, Any] = {"variant": chosen, "scope": scope, "target": target, "notes": notes}
    if variant is None:
        zero = {stat: _unborn(query, stat) for stat in asked.stats_of(query)}
        of_revisions = query.kind is Kind.ATTEMPTS and asked.revisions
        places = [_place(asked, each.revision) for each in asked.revisions] if of_revisions else [Place()]
        return [
            one for place in places for one in present(asked, query, place, numbers=zero, labels={}, **shown)
        ]
    if query.kind is Kind.ATTEMPTS:
        return read_attempts(asked, engines, query, variant, target, scope)
    answer = evaluate(asked.client, query, variant, scope, asked.stats_of(query))
    found: list[Measured] = []
    for pairs, numbers in sorted(answer.numbers.items()):
        labels = dict(pairs)
        place = _place(asked, labels.pop("revision", ""))
        if place.started_at is not None and target.newest < place.started_at:
            continue  # said before this incarnation began, of an earlier one
        found += present(
            asked, query, place, numbers=numbers, labels=labels, warnings=answer.warnings, **shown
        )
    if "revision" in query.by:
        found += _revisions_left_out(asked, query, target, {one.revision for one in found})
    elif not found:
        reason = "It is exposed, but has not been scraped often enough in this time."
        found = absent(asked, query, Place(), State.NO_DATA, reason, target)
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
