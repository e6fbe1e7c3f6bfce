"""Numbers of gates that the metric source has: of the new revision, beside the old one where a gate compares.

Every number belongs to one incarnation of its revision and to one role; the worst of the roles that had traffic
counts. A source that does not answer makes every gate not evaluable, with the reason, and never green.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from controlplane.errors import LockstepError
from controlplane.fleet.connections import connect_metrics
from controlplane.fleet.models import Cluster
from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.measured import Measured, State
from controlplane.metrics.reading import measure_all
from controlplane.metrics.source import Source
from controlplane.paths.view import PoolView
from policy.gates import Gate, Measurement

CALL_S = 3.0
BUDGET_S = 5.0  # of all questions of one look: a step has seconds
# Metric of a gate → named query, the number wanted of it, and the side that tells it (empty: every role).
ENGINES: Mapping[str, tuple[str, str, str]] = {
    "error_ratio": ("error_ratio", "value", ""),
    "ttft_p95": ("ttft", "p95", ""),
    "failed_transfers_ratio": ("failed_transfers_ratio", "value", ""),
    "expired_leases_ratio": ("expired_leases_ratio", "value", "prefill"),
    "disaggregated_share": ("disaggregated_share", "value", "decode"),
    "kv_usage": ("kv_usage", "value", ""),
    "queue_per_group": ("queue_per_group", "value", "decode"),
}
ROUTERS = ("decode_only_share",)


@dataclass(frozen=True, slots=True)
class Life:
    """One revision of the set: since when it lives, and the engine version of each role, where it is known."""

    label: str
    began: datetime
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the numbers are asked about.

    `sides` is `prefill`, `decode` or "" by role name. `old_whole`: the old revision has every role now, so that it
    can be compared with at the same time; else as it was before the new one came. Nothing from before `since` counts.
    """

    namespace: str
    name: str
    sides: Mapping[str, str]
    new: Life
    old: Life
    old_whole: bool
    pools: tuple[PoolView, ...]
    now: datetime
    since: datetime | None = None

    def age(self, moment: datetime) -> float:
        """Seconds from a moment until now."""
        return (self.now - moment).total_seconds()

    def incarnation(self, life: Life, at: float) -> Incarnation:
        """The life on the source's clock, of which `at` is the present."""
        cut = at - self.age(self.since) if self.since else 0.0
        return Incarnation(life.label, at - self.age(life.began), counted_from=cut)


@dataclass(slots=True)
class Numbers:
    """Measurements and the texts of their queries, by gate id."""

    measurements: dict[str, list[Measurement]] = field(default_factory=dict)
    queries: dict[str, list[str]] = field(default_factory=dict)

    def put(self, gate: Gate, measurements: Sequence[Measurement], found: Iterable[Measured | None]) -> None:
        """What a gate is judged by."""
        self.measurements[gate.id] = list(measurements)
        texts = [one.query for one in found if one is not None and one.query]
        self.queries[gate.id] = list(dict.fromkeys(texts))


def of_the_source(gate: Gate) -> bool:
    """Whether a gate's number comes from the metric source."""
    return gate.metric in ENGINES or gate.metric in ROUTERS


def ask_source(cluster: Cluster, subject: Subject, gates: Sequence[Gate]) -> Numbers:
    """Numbers for all gates that have them from the cluster's metric source. Raises nothing for what that does."""
    wanted = [gate for gate in gates if of_the_source(gate)]
    try:
        client, source = connect_metrics(cluster, timeout_s=CALL_S, budget_s=BUDGET_S)
        with client:
            return _ask(client, source, subject, wanted)
    except LockstepError as error:
        away = Measurement("no-data", revision=subject.new.label, note=error.sentence.rstrip("."))
        return Numbers({gate.id: [away] for gate in wanted})


def _ask(client: Prometheus, source: Source, subject: Subject, gates: Sequence[Gate]) -> Numbers:
    at, numbers = client.now(), Numbers()
    for window in sorted({gate.window_s for gate in gates if gate.metric in ENGINES}):
        together = [gate for gate in gates if gate.metric in ENGINES and gate.window_s == window]
        _ask_engines(client, source, subject, together, at, numbers)
    for gate in gates:
        if gate.metric in ROUTERS:
            _ask_routers(client, source, subject, gate, at, numbers)
    return numbers


def _ask_engines(
    client: Prometheus, source: Source, subject: Subject, gates: Sequence[Gate], at: float, numbers: Numbers
) -> None:
    plain: dict[str, Any] = {
        "namespace": subject.namespace,
        "set": subject.name,
        "window_s": gates[0].window_s,
        "stats": ("p95",),
        "roles": tuple(subject.sides),
    }
    names = list(dict.fromkeys(ENGINES[gate.metric][0] for gate in gates))
    new = measure_all(
        client, source, names, revisions=[subject.incarnation(subject.new, at)], now=at, **plain
    )
    compared = list(dict.fromkeys(ENGINES[gate.metric][0] for gate in gates if gate.relative))
    old: list[Measured] = []
    if compared:
        then, life = at, subject.incarnation(subject.old, at)
        if not subject.old_whole:
            then, life = at - subject.age(subject.new.began), replace(life, counted_from=0.0)
        old = measure_all(client, source, compared, revisions=[life], now=then, **plain)
    for gate in gates:
        seen, beside = _by_role(gate, new, subject), _by_role(gate, old, subject)
        found = [
            _measurement(one, subject.new, role, _baseline(beside.get(role), subject.old, role))
            for role, one in _with_traffic(seen).items()
        ]
        nobody = Measurement("no-data", revision=subject.new.label, note="no pod of it is scraped")
        used = [beside.get(role) for role in seen] if gate.relative else []
        numbers.put(gate, found or [nobody], [*seen.values(), *used])


def _ask_routers(
    client: Prometheus, source: Source, subject: Subject, gate: Gate, at: float, numbers: Numbers
) -> None:
    """The router counts for its pool, not by revision: with the new revision against before it came."""
    found, texts = [], list[Measured | None]()
    began = subject.age(subject.new.began)
    lived = min(began, subject.age(subject.since)) if subject.since else began
    for pool in subject.pools:
        if pool.router.owner is None:
            found.append(Measurement("no-data", revision=pool.name, note="its router is not known"))
            continue
        plain: dict[str, Any] = {"namespace": pool.namespace, "router": pool.router.owner[1]}
        window = max(1, min(gate.window_s, int(lived)))
        now, *_ = measure_all(client, source, [gate.metric], window_s=window, now=at, **plain)
        before, *_ = measure_all(
            client, source, [gate.metric], window_s=gate.window_s, now=at - began, **plain
        )
        baseline = replace(before.as_measurement(), revision=f"before {subject.new.label} came")
        found.append(replace(now.as_measurement(baseline=baseline), revision=f"pool {pool.name}"))
        texts += [now, before]
    numbers.put(gate, found, texts)


def _by_role(gate: Gate, found: Iterable[Measured], subject: Subject) -> dict[str, Measured]:
    """The wanted number of each role that tells it. A role of no known side may tell anything."""
    name, stat, side = ENGINES[gate.metric]
    return {
        one.role: one
        for one in found
        if one.name == name
        and (one.instead_of or one.stat) == stat
        and (not side or subject.sides.get(one.role, "") in ("", side))
    }


def _with_traffic(seen: Mapping[str, Measured]) -> dict[str, Measured]:
    """A side that has nothing to tell (transfers are told by who reads) is left out where another has."""
    busy = {role: one for role, one in seen.items() if one.state is not State.NO_TRAFFIC}
    return busy or dict(seen)


def _measurement(one: Measured, life: Life, role: str, baseline: Measurement | None) -> Measurement:
    told = one.as_measurement(baseline=baseline)
    version = life.versions.get(role) or told.version
    return replace(told, revision=f"{life.label} ({role})" if role else life.label, version=version)


def _baseline(one: Measured | None, life: Life, role: str) -> Measurement | None:
    return None if one is None else _measurement(one, life, role, None)
