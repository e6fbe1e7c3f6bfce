"""What is there before anything is computed: which metrics, of which roles and revisions, how fresh, since when.

A query on a name that is not exposed and one on pods that nobody scrapes both give nothing. This look tells them
apart, so that no absence is taken for zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.metrics.client import Prometheus
from controlplane.metrics.named import ENGINE_ANCHORS, ROUTER_ANCHORS, Kind, Query, Variant
from controlplane.metrics.promql import PART, names_there, one_of, selector, together
from controlplane.metrics.source import Source

Key = tuple[str, str]  # (role, revision); both empty for the router
ROUTER: Key = ("", "")


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of one role of one revision (or of the router). `metrics` has exposed names without the
    source's prefix. `newest` is the time of its newest scrape, `remembered` whether the source had it two
    windows ago, `scrapes` how many scrapes of one pod the window holds at most, `started` when its oldest
    process began (0: not said). Times are unix seconds on the source's clock."""

    engine: str
    anchor: str
    metrics: frozenset[str]
    newest: float | None
    remembered: bool
    scrapes: int
    started: float


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look found."""

    targets: Mapping[Key, Target]
    warnings: tuple[str, ...] = field(default=())

    def roles_of(self, revision: str) -> list[str]:
        """Roles of a revision that are scraped, by name."""
        return sorted(role for role, label in self.targets if label == revision)


def look_at_engines(
    client: Prometheus,
    source: Source,
    queries: Iterable[Query],
    *,
    matchers: str,
    revisions: Iterable[str],
    window_s: int,
    at: float,
) -> Survey:
    """A look at those pods of a set, selected by `matchers`, that are of one of the revisions."""
    by = (source.labels["role"], source.labels["revision"])
    these = f"{matchers},{source.labels['revision']}=~{one_of(revisions)}"
    return _survey(_Look(client, source, ENGINE_ANCHORS, these, by, window_s, at), queries)


def look_at_router(
    client: Prometheus, source: Source, queries: Iterable[Query], *, matchers: str, window_s: int, at: float
) -> Survey:
    """A look at the router whose series `matchers` select."""
    return _survey(_Look(client, source, ROUTER_ANCHORS, matchers, (), window_s, at), queries)


def prefix_for(engine: str, source: Source) -> str:
    """What stands before an engine's names in this source. The older endpoint picker has names of its own."""
    return {"llm-d-router": source.router_prefix, "gaie-epp": ""}.get(engine, source.prefix)


def names_of(query: Query, variant: Variant) -> tuple[str, ...]:
    """The names that have to be there for a variant, as `Target.metrics` has them."""
    if query.kind is Kind.HISTOGRAM:
        return (f"{variant.top.name}_count",)
    return (variant.top.name, *(term.name for term in variant.bottom))


@dataclass(frozen=True, slots=True)
class _Look:
    client: Prometheus
    source: Source
    anchors: Mapping[str, tuple[str, ...]]
    matchers: str
    by: tuple[str, ...]
    window_s: int
    at: float

    def key(self, labels: Mapping[str, str]) -> Key:
        return (labels.get(self.by[0], ""), labels.get(self.by[1], "")) if self.by else ROUTER


def _survey(look: _Look, queries: Iterable[Query]) -> Survey:
    engines = {name: engine for engine, names in look.anchors.items() for name in names}
    for query in queries:
        for variant in query.variants:
            names = (*names_of(query, variant), *([variant.proof] if variant.proof else ()))
            engines |= {name: variant.engine for name in names}
    bare = {f"{prefix_for(engine, look.source)}{name}": name for name, engine in engines.items()}
    answer = look.client.instant(names_there(bare, look.matchers, look.by), look.at)
    there: dict[Key, set[str]] = {}
    for series in answer.series:
        there.setdefault(look.key(series.labels), set()).add(bare[series.labels["metric"]])
    anchors = {key: _anchor_of(names, look.anchors) for key, names in there.items()}
    times = _times(look, {found for found in anchors.values() if found[0]})
    targets = {
        key: Target(
            engine=engine,
            anchor=f"{prefix_for(engine, look.source)}{anchor}",
            metrics=frozenset(there[key]),
            newest=times.get(("newest", engine, key)),
            remembered=("before", engine, key) in times,
            scrapes=int(times.get(("scrapes", engine, key), 0)),
            started=times.get(("started", "", key), 0.0),
        )
        for key, (engine, anchor) in anchors.items()
        if engine
    }
    return Survey(targets, answer.warnings)


def _times(look: _Look, anchors: Iterable[tuple[str, str]]) -> dict[tuple[str, str, Key], float]:
    """(what, engine, key) → number, of what is there for each engine."""
    grouped = ", ".join(look.by)
    parts: dict[str, str] = {}
    for engine, anchor in sorted(anchors):
        series = selector(f"{prefix_for(engine, look.source)}{anchor}", look.matchers)
        parts[f"newest/{engine}"] = f"max by ({grouped}) (timestamp({series}))"
        parts[f"before/{engine}"] = f"count by ({grouped}) ({series} offset {2 * look.window_s}s)"
        parts[f"scrapes/{engine}"] = f"max by ({grouped}) (count_over_time({series}[{look.window_s}s]))"
    if not parts:
        return {}
    started = selector("process_start_time_seconds", look.matchers)
    parts["started/"] = f"min by ({grouped}) ({started})"
    found = {}
    for series_found in look.client.instant(together(parts), look.at).series:
        what, _, engine = series_found.labels[PART].partition("/")
        if series_found.value is not None:
            found[what, engine, look.key(series_found.labels)] = series_found.value
    return found


def _anchor_of(names: set[str], anchors: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    for engine, candidates in anchors.items():
        for name in candidates:
            if name in names:
                return engine, name
    return "", ""
