"""What is asked about, and how numbers become what a reader gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.metrics.client import Prometheus
from controlplane.metrics.evaluate import Number, Scope, text_of
from controlplane.metrics.measured import FEW_SAMPLES, FEW_SCRAPES, LEAST_SCRAPES, Measured, State
from controlplane.metrics.named import Query, Variant
from controlplane.metrics.promql import matchers_of, pods_of
from controlplane.metrics.source import Source
from controlplane.metrics.survey import Target


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A revision label and when it began to live (unix seconds, cluster time). `version` of its engine where
    it is known, such as `0.30.0`. Nothing from before `counted_from` is counted, although it lived then: what
    is asked has stood only since."""

    revision: str
    started_at: float
    version: str = ""
    counted_from: float = 0.0

    @property
    def cut(self) -> bool:
        """Whether less than its life is counted."""
        return self.counted_from > self.started_at


@dataclass(frozen=True, slots=True)
class Asked:
    """One reading: of which set and router, over which window, at which moment of the source's clock."""

    client: Prometheus
    source: Source
    namespace: str
    set: str
    slice: str
    router: str
    revisions: tuple[Incarnation, ...]
    roles: tuple[str, ...]
    window_s: int
    at: float
    stats: tuple[str, ...]

    def stats_of(self, query: Query) -> tuple[str, ...]:
        """What is wanted of a query: quantiles and means are of histograms alone."""
        return self.stats if self.stats and query.stats != ("value",) else query.stats

    def engine_matchers(self, revision: str = "") -> str:
        """Matchers of the set's pods."""
        words = {"namespace": self.namespace, "set": self.set, "slice": self.slice, "revision": revision}
        return matchers_of({self.source.labels[word]: value for word, value in words.items()})

    def router_matchers(self) -> str:
        """Matchers of the router's pods: those of its Deployment, also of earlier ones."""
        labels = self.source.labels
        return f"{matchers_of({labels['namespace']: self.namespace})},{labels['pod']}=~{pods_of(self.router)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a number belongs: role and revision incarnation, or neither (the router)."""

    role: str = ""
    revision: str = ""
    started_at: float | None = None
    version: str = ""


def absent(
    asked: Asked, query: Query, place: Place, state: State, reason: str, target: Target | None = None
) -> list[Measured]:
    """The same absence for every wanted stat."""
    plain = Measured(
        name=query.name,
        stat="",
        state=state,
        value=None,
        unit=query.unit,
        role=place.role,
        revision=place.revision,
        started_at=place.started_at,
        at=asked.at,
        window_s=asked.window_s,
        engine=target.engine if target else "",
        version=place.version,
        age_s=asked.at - target.newest if target and target.newest is not None else None,
        reason=reason,
    )
    return [replace(plain, stat=stat) for stat in asked.stats_of(query)]


def present(
    asked: Asked,
    query: Query,
    place: Place,
    *,
    variant: Variant,
    scope: Scope,
    numbers: Mapping[str, Number],
    target: Target,
    labels: Mapping[str, str],
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> list[Measured]:
    """Numbers of one place, with what they are worth."""
    found = []
    for stat, number in numbers.items():
        enough = number.count is None or number.count >= query.min_samples
        state = _state(number)
        marks = [*notes, *number.notes]
        marks += [FEW_SAMPLES] if not enough else []
        marks += [FEW_SCRAPES] if target.scrapes < LEAST_SCRAPES else []
        found.append(
            Measured(
                name=query.name,
                stat=number.stat,
                state=state,
                value=number.value,
                unit=_unit(query, number),
                role=place.role,
                revision=place.revision,
                started_at=place.started_at,
                at=asked.at,
                window_s=scope.reach.window_s,
                query=text_of(query, variant, scope, number.stat),
                labels=labels,
                count=float(target.scrapes) if number.count is None else number.count,
                enough=enough and state is State.VALUE,
                at_least=number.at_least,
                instead_of=stat if stat != number.stat else "",
                age_s=asked.at - (target.newest or 0.0),
                engine=target.engine,
                version=place.version,
                bounds=number.bounds,
                notes=tuple(marks),
                warnings=tuple(warnings),
                reason=_reason(state),
            )
        )
    return found


def _state(number: Number) -> State:
    if number.hidden:
        return State.NOT_EXPOSED
    if number.idle:
        return State.NO_TRAFFIC
    return State.NO_DATA if number.value is None else State.VALUE


def _unit(query: Query, number: Number) -> str:
    return "observations" if number.stat == "count" else query.unit


def _reason(state: State) -> str:
    return {
        State.NO_TRAFFIC: "It is scraped, and nothing happened in this time.",
        State.NO_DATA: "What the source has of it makes no number.",
        State.NOT_EXPOSED: "The metric is there, but this version does not tell this part of it apart.",
    }.get(state, "")
