"""Numbers that engines tell, by role of each revision incarnation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controlplane.metrics.asked import Asked, Incarnation, Place, absent, present
from controlplane.metrics.evaluate import Scope, evaluate
from controlplane.metrics.measured import HISTORY_SHORT, SINCE_START, Measured, State
from controlplane.metrics.named import Kind, Query, Variant
from controlplane.metrics.promql import Reach, selector
from controlplane.metrics.survey import Survey, Target, prefix_for
from controlplane.metrics.variants import choose_variant, why_not_exposed


def read_engines(asked: Asked, survey: Survey, query: Query) -> list[Measured]:
    """One named number of every asked incarnation, by role. Raises MetricsError."""
    found: list[Measured] = []
    for incarnation in asked.revisions:
        found += _read_one(asked, survey, query, incarnation)
    return found


def reach_of(
    targets: Iterable[Target], *, at: float, window_s: int, since: float
) -> tuple[Reach, tuple[str, ...]]:
    """How far back counts of these targets go, and what has to be said of it. Nothing from before `since`
    (the incarnation's start) is counted."""
    known = list(targets)
    if at - since < 2 * window_s:
        return Reach(max(1, math.floor(at - since)), None), (SINCE_START,)
    if any(target.remembered for target in known):
        return Reach(window_s, 2 * window_s), ()
    oldest = min((target.started for target in known), default=0.0)
    if oldest >= at - 2 * window_s:
        return Reach(2 * window_s, None), (SINCE_START,)
    return Reach(window_s, 0), (HISTORY_SHORT,)


def cut_reach(reach: Reach, *, at: float, window_s: int, counted_from: float) -> Reach:
    """From this moment on. A series that was there then is read by its increase; one that was not began after it, as
    far as the source's memory goes (`reach` is what it would be without the cut)."""
    seconds = max(1, min(window_s, math.floor(at - counted_from)))
    return Reach(seconds, 0 if reach.young_s == 0 else seconds, exact=True)


def _read_one(asked: Asked, survey: Survey, query: Query, incarnation: Incarnation) -> list[Measured]:
    revision, started = incarnation.revision, incarnation.started_at
    roles = sorted({*asked.roles, *survey.roles_of(revision)}) or [""]
    targets: dict[str, Target] = {}
    found: list[Measured] = []
    for role in roles:
        place = _place(role, incarnation)
        target = survey.targets.get((role, revision))
        if asked.at - started < 1:
            found += absent(asked, query, place, State.NO_DATA, "This incarnation has only just begun.")
        elif target is None or target.newest is None or target.newest < started:
            reason = "No pod of it has been scraped since it began."
            found += absent(asked, query, place, State.NO_DATA, reason)
        else:
            targets[role] = target
    if not targets:
        return found
    if query.kind is Kind.FRESHNESS:
        return found + _freshness(asked, query, incarnation, targets)
    if query.over_roles:
        found = []
        targets = {"": _merged(targets.values())}
    chosen: dict[Variant, dict[str, Target]] = {}
    for role, target in targets.items():
        variant = choose_variant(query, engine=target.engine, there=target.metrics)
        if variant is None:
            reason = why_not_exposed(query, engine=target.engine, version=incarnation.version)
            found += absent(asked, query, _place(role, incarnation), State.NOT_EXPOSED, reason, target)
        else:
            chosen.setdefault(variant, {})[role] = target
    for variant, members in chosen.items():
        found += _evaluated(asked, query, variant, incarnation, members)
    return found


def _evaluated(
    asked: Asked, query: Query, variant: Variant, incarnation: Incarnation, targets: Mapping[str, Target]
) -> list[Measured]:
    labels = asked.source.labels
    scope, notes = _scope(asked, query, variant, incarnation, targets)
    answer = evaluate(asked.client, query, variant, scope, asked.stats_of(query))
    found: list[Measured] = []
    seen = set()
    for pairs, numbers in sorted(answer.numbers.items()):
        more = dict(pairs)
        role = more.pop(labels["role"], "")
        if role in targets:
            seen.add(role)
            found += present(
                asked,
                query,
                _place(role, incarnation),
                variant=variant,
                scope=scope,
                numbers=numbers,
                target=targets[role],
                labels={"pod" if name == labels["pod"] else name: text for name, text in more.items()},
                notes=notes,
                warnings=answer.warnings,
            )
    for role in sorted(targets.keys() - seen):
        reason = "It is exposed, but has not been scraped often enough in this time."
        found += absent(asked, query, _place(role, incarnation), State.NO_DATA, reason, targets[role])
    return found


def _scope(
    asked: Asked, query: Query, variant: Variant, incarnation: Incarnation, targets: Mapping[str, Target]
) -> tuple[Scope, tuple[str, ...]]:
    started, labels = incarnation.started_at, asked.source.labels
    reach, notes = reach_of(targets.values(), at=asked.at, window_s=asked.window_s, since=started)
    if incarnation.cut:
        reach = cut_reach(reach, at=asked.at, window_s=asked.window_s, counted_from=incarnation.counted_from)
        notes = tuple(note for note in notes if note != SINCE_START)
    kept = () if query.over_roles else ("role",)
    scope = Scope(
        prefix=prefix_for(variant.engine, asked.source),
        matchers=asked.engine_matchers(incarnation.revision),
        by=tuple(labels.get(word, word) for word in (*kept, *query.by)),
        pod=labels["pod"],
        reach=reach,
        at=asked.at,
        not_before=max(started, incarnation.counted_from, asked.at - asked.window_s),
    )
    return scope, notes


def _place(role: str, incarnation: Incarnation) -> Place:
    return Place(role, incarnation.revision, incarnation.started_at, incarnation.version)


def _freshness(
    asked: Asked, query: Query, incarnation: Incarnation, targets: Mapping[str, Target]
) -> list[Measured]:
    labels = asked.source.labels
    found: list[Measured] = []
    for anchor in sorted({target.anchor for target in targets.values()}):
        series = selector(anchor, asked.engine_matchers(incarnation.revision))
        text = f"time() - max by ({labels['role']}, {labels['pod']}) (timestamp({series}))"
        for seen in asked.client.instant(text, asked.at).series:
            role, pod = seen.labels.get(labels["role"], ""), seen.labels.get(labels["pod"], "")
            age = seen.value
            if role not in targets or age is None or asked.at - age < incarnation.started_at:
                continue
            found.append(
                Measured(
                    name=query.name,
                    stat="value",
                    state=State.VALUE,
                    value=age,
                    unit=query.unit,
                    role=role,
                    revision=incarnation.revision,
                    started_at=incarnation.started_at,
                    at=asked.at,
                    window_s=asked.window_s,
                    query=text,
                    labels={"pod": pod},
                    enough=True,
                    age_s=age,
                    engine=targets[role].engine,
                )
            )
    return found


def _merged(targets: Iterable[Target]) -> Target:
    """All roles as one: everything that any of them exposes, as old as the stalest."""
    known = list(targets)
    return replace(
        known[0],
        metrics=frozenset().union(*(target.metrics for target in known)),
        newest=min(target.newest or 0.0 for target in known),
        remembered=any(target.remembered for target in known),
        scrapes=min(target.scrapes for target in known),
        started=min(target.started for target in known),
    )
