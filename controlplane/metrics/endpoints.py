"""What the router gave to each endpoint, joined to the labels of the endpoint's pod.

The router knows pods by name alone. Which role and revision a pod had is on the series that the pod itself exposes, so
the two are joined by pod. What finds no partner is kept and shown as such, or shares would not add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from controlplane.metrics.asked import Asked, Incarnation, Place, absent, present
from controlplane.metrics.engines import cut_reach
from controlplane.metrics.evaluate import Number, Scope
from controlplane.metrics.measured import SINCE_START, Measured, State
from controlplane.metrics.named import Query, Variant
from controlplane.metrics.promql import Reach, by_endpoint, one_of, pod_labels, selector, term
from controlplane.metrics.survey import Survey, Target

_ENDPOINT_LABEL = {"llm-d-router": "endpoint_name", "gaie-epp": "pod_name"}


def read_attempts(
    asked: Asked, engines: Survey | None, query: Query, variant: Variant, target: Target, scope: Scope
) -> list[Measured]:
    """Counts by endpoint: of each asked incarnation, and of endpoints that are no pod of any of them (role
    and revision empty). Raises MetricsError."""
    anchors = sorted({each.anchor for each in engines.targets.values()}) if engines else []
    found: list[Measured] = []
    for incarnation in asked.revisions:
        place = Place("", incarnation.revision, incarnation.started_at)
        reach = _since(scope.reach, asked, incarnation)
        pods = _pods(asked, anchors, reach, asked.engine_matchers(incarnation.revision))
        if not pods:
            reason = "No pod of the set is scraped, so no endpoint is known as one of it."
            found += absent(asked, query, place, State.NO_DATA, reason, target)
            continue
        keys, role = _keys(asked), asked.source.labels["role"]
        text = f"({_attempts(asked, variant, scope, reach)}) * on ({keys}) group_left ({role}) ({pods})"
        narrowed = replace(scope, reach=reach)
        counts = _counts(asked, query, variant, target, narrowed, text, incarnation)
        found += counts or _none(asked, query, variant, target, narrowed, text, place)
    everyone = f"{asked.source.labels['revision']}=~{one_of(each.revision for each in asked.revisions)}"
    pods = _pods(asked, anchors, scope.reach, f"{asked.engine_matchers()},{everyone}")
    text = _attempts(asked, variant, scope, scope.reach)
    if pods:
        text = f"({text}) unless on ({_keys(asked)}) ({pods})"
    return found + _counts(asked, query, variant, target, scope, text, None)


def _since(reach: Reach, asked: Asked, incarnation: Incarnation) -> Reach:
    """Not further back than the incarnation. An endpoint that was counted before it began (the pod's name
    has come back) is read by its increase."""
    if incarnation.cut:
        return cut_reach(reach, at=asked.at, window_s=asked.window_s, counted_from=incarnation.counted_from)
    age = max(1, math.floor(asked.at - incarnation.started_at))
    if age >= 2 * asked.window_s:
        return reach
    return Reach(min(age, reach.window_s), 0) if reach.young_s == 0 else Reach(age, age)


def _since_start(reach: Reach, incarnation: Incarnation | None) -> bool:
    return not (incarnation and incarnation.cut) and reach.young_s in (None, reach.window_s)


def _keys(asked: Asked) -> str:
    return f"{asked.source.labels['namespace']}, {asked.source.labels['pod']}"


def _attempts(asked: Asked, variant: Variant, scope: Scope, reach: Reach) -> str:
    labels = asked.source.labels
    return by_endpoint(
        term(scope.prefix, scope.matchers, variant.top),
        reach,
        endpoint=_ENDPOINT_LABEL[variant.engine],
        namespace=labels["namespace"],
        pod=labels["pod"],
    )


def _pods(asked: Asked, anchors: Iterable[str], reach: Reach, matchers: str) -> str:
    labels = asked.source.labels
    return " or ".join(
        pod_labels(
            selector(anchor, matchers),
            reach.window_s,
            key=(labels["namespace"], labels["pod"]),
            labels=(labels["role"],),
        )
        for anchor in anchors
    )


def _none(
    asked: Asked, query: Query, variant: Variant, target: Target, scope: Scope, text: str, place: Place
) -> list[Measured]:
    """No endpoint of a revision has a count: nobody was sent there, as far as the source's memory goes."""
    if scope.reach.young_s == 0:
        reason = "It is exposed, but has not been scraped often enough in this time."
        return absent(asked, query, place, State.NO_DATA, reason, target)
    zero = {"value": Number("value", 0.0, 0.0)}
    made = present(
        asked, query, place, variant=variant, scope=scope, numbers=zero, target=target, labels={}, notes=()
    )
    return [replace(one, query=text) for one in made]


def _counts(
    asked: Asked,
    query: Query,
    variant: Variant,
    target: Target,
    scope: Scope,
    text: str,
    incarnation: Incarnation | None,
) -> list[Measured]:
    labels = asked.source.labels
    answer = asked.client.instant(text, asked.at)
    found: list[Measured] = []
    for series in answer.series:
        role = series.labels.get(labels["role"], "") if incarnation else ""
        started = incarnation.started_at if incarnation else None
        made = present(
            asked,
            query,
            Place(role, incarnation.revision if incarnation else "", started),
            variant=variant,
            scope=scope,
            numbers={"value": Number("value", series.value, series.value)},
            target=target,
            labels={"endpoint": series.labels.get(labels["pod"], "")},
            notes=(SINCE_START,) if _since_start(scope.reach, incarnation) else (),
            warnings=answer.warnings,
        )
        found += [replace(one, query=text) for one in made]
    return found
