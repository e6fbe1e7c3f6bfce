"""What the metric source says of a request path: where requests went, and what the KV link carried.

Shares are the router's picks joined to pods, compared with the plan over the time for which the plan has stood.
From metrics alone pairs are aggregates: the router counts the pod that decodes and nobody counts who prefilled for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor
from typing import Any

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.measured import FEW_SCRAPES, LEAST_SCRAPES, Measured, State
from controlplane.metrics.reading import measure_all
from controlplane.metrics.source import Source
from controlplane.paths.view import PathView, PoolView
from policy.shares import MeasuredShares, PodPlace, agree, measured_shares
from policy.shares.facts import DECODES, PREFILLS

Json = dict[str, Any]

WINDOW_S = 600
ROUTER_NAMES = ("scheduler_attempts", "disagg_decisions")
ENGINE_NAMES = ("finished_requests", "transfer_bytes_per_token", "transfer_time")
PAIRS = {
    "state": "not-known",
    "sentence": "From metrics alone pairs are aggregates: which prefill served which decode is counted nowhere.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a reading rests on: `ages` is for how many seconds each revision (set, label) has lived, `steady_for`
    for how many seconds the plan has stood and nobody has sent pinned probes."""

    ages: Mapping[tuple[str, str], float]
    steady_for: float


@dataclass(slots=True)
class Numbers:
    """Named numbers of one path. `lacking` are sentences of pools whose router has no picks to tell."""

    attempts: dict[str, float] = field(default_factory=dict)
    places: dict[str, PodPlace] = field(default_factory=dict)
    decisions: dict[str, float] | None = field(default_factory=dict)
    prefilled: dict[str, float] | None = field(default_factory=dict)
    engines: list[tuple[str, Measured]] = field(default_factory=list)  # set, number
    lacking: list[str] = field(default_factory=list)
    states: set[State] = field(default_factory=set)
    warnings: set[str] = field(default_factory=set)
    queries: dict[str, str] = field(default_factory=dict)


def measure_path(
    client: Prometheus, source: Source, path: PathView, standing: Standing
) -> tuple[Json, Numbers]:
    """Shares and agreement of a path as JSON, and the numbers behind it. Raises MetricsError.

    `state` is `value`, `no-traffic`, `no-data` or `not-exposed`; only with `value` there are shares.
    """
    at = client.now()
    window = max(1, min(WINDOW_S, floor(standing.steady_for)))
    numbers = Numbers()
    for pool in path.pools:
        _place(numbers, pool)
        if pool.router.owner is None:
            numbers.states.add(State.NO_DATA)
            numbers.lacking.append(f"The router of {pool.name} is not known, so neither are its picks.")
        for found in _measure_pool(client, source, pool, standing, at=at, window_s=window):
            _take(numbers, pool, *found)
    document: Json = {
        "at": at,
        "window_s": window,
        "pairs": PAIRS,
        "warnings": sorted(numbers.warnings),
        "queries": numbers.queries,
    }
    if numbers.lacking:
        state = State.NOT_EXPOSED if numbers.states == {State.NOT_EXPOSED} else State.NO_DATA
        return {**document, "state": state.value, "reason": numbers.lacking[0]}, numbers
    shares = measured_shares(
        numbers.attempts,
        numbers.places,
        decisions=numbers.decisions or None,
        prefilled=numbers.prefilled or None,  # {}: nobody was asked, which is not zero
    )
    if not shares.total:
        reason = f"The router gave no request to any pod in {window} s."
        return {**document, "state": State.NO_TRAFFIC.value, "reason": reason}, numbers
    return {**document, "state": State.VALUE.value, "reason": "", **_compared(path, shares)}, numbers


def _compared(path: PathView, shares: MeasuredShares) -> Json:
    agreement = asdict(agree(path.planned, shares))
    return {"shares": asdict(shares), "agreement": agreement}


def _place(numbers: Numbers, pool: PoolView) -> None:
    for pod in pool.pods:
        if pod.in_pool:
            numbers.places[pod.name] = PodPlace(pool.name, pod.revision, pod.role)
    if any(pod.in_pool and pod.role in PREFILLS & DECODES for pod in pool.pods):
        numbers.prefilled = None  # what such a pod finished says not which half it did


def _measure_pool(
    client: Prometheus, source: Source, pool: PoolView, standing: Standing, *, at: float, window_s: int
) -> Iterable[tuple[str, list[Measured]]]:
    """(set, numbers): those of the router with the first set of the pool, or alone where it has none."""
    router = pool.router.owner
    for index, name in enumerate(pool.sets or ("",)):
        revisions = _revisions(pool, name, standing, at=at, window_s=window_s)
        names = (*(ROUTER_NAMES if router and not index else ()), *(ENGINE_NAMES if revisions else ()))
        if names:
            yield (
                name,
                measure_all(
                    client,
                    source,
                    names,
                    namespace=pool.namespace,
                    window_s=window_s,
                    set=name,
                    revisions=revisions,
                    router=router[1] if router else "",
                    stats=("mean", "count"),
                    now=at,
                ),
            )


def _revisions(
    pool: PoolView, set_name: str, standing: Standing, *, at: float, window_s: int
) -> list[Incarnation]:
    """Every revision of the set that has pods, counted over the same time: else shares could not be compared."""
    labels = sorted({pod.revision for pod in pool.pods if pod.in_pool and pod.set_name == set_name})
    return [
        Incarnation(label, at - standing.ages.get((set_name, label), 0.0), counted_from=at - window_s)
        for label in labels
    ]


def _take(numbers: Numbers, pool: PoolView, set_name: str, found: Sequence[Measured]) -> None:
    for one in found:
        numbers.warnings.update(one.warnings)
        if one.query:
            numbers.queries.setdefault(one.name, one.query)
        if one.name not in ROUTER_NAMES:
            numbers.engines.append((set_name, one))
    _take_attempts(numbers, pool, [one for one in found if one.name == "scheduler_attempts"])
    decisions = [one for one in found if one.name == "disagg_decisions"]
    for one in decisions:
        if numbers.decisions is None or one.value is None:
            numbers.decisions = None  # of one pool alone they would say nothing of the path
            break
        kind = (one.labels or {}).get("decision_type", "")
        numbers.decisions[kind] = numbers.decisions.get(kind, 0.0) + one.value
    _take_prefilled(numbers, pool, [one for one in found if one.name == "finished_requests"])


def _take_attempts(numbers: Numbers, pool: PoolView, found: Sequence[Measured]) -> None:
    values = [one for one in found if one.value is not None]
    if any(FEW_SCRAPES in one.notes for one in values):
        numbers.states.add(State.NO_DATA)
        seconds = values[0].window_s
        numbers.lacking.append(
            f"Router of {pool.name}: scraped fewer than {LEAST_SCRAPES} times in the {seconds:g} s for which the path "
            "has stood as it is; counts of so few would be guesses."
        )
        return
    for one in values:
        endpoint = (one.labels or {}).get("endpoint", "")
        if endpoint:
            numbers.attempts[endpoint] = numbers.attempts.get(endpoint, 0.0) + (one.value or 0.0)
            if one.revision:
                numbers.places.setdefault(endpoint, PodPlace(pool.name, one.revision, one.role))
    if found and not values:
        numbers.states.update(one.state for one in found)
        numbers.lacking.append(f"Router of {pool.name}: {found[0].reason}")


def _take_prefilled(numbers: Numbers, pool: PoolView, found: Sequence[Measured]) -> None:
    """By pod; of a set whose prefill side is not all there, nothing."""
    roles = {pod.name: pod.role for pod in pool.pods}
    names = {pod.role for pod in pool.pods if pod.role in PREFILLS}
    for one in found:
        pod = (one.labels or {}).get("pod", "")
        if numbers.prefilled is None or (roles.get(pod) or one.role) not in names:
            continue
        if one.value is None or not pod:
            numbers.prefilled = None
            return
        numbers.prefilled[pod] = numbers.prefilled.get(pod, 0.0) + one.value
