"""Which variant of a named query fits an engine: the first whose metrics are there."""

from __future__ import annotations

from controlplane.metrics.named import ENGINE_NAMES, Query, Variant
from controlplane.metrics.survey import names_of


def choose_variant(query: Query, *, engine: str, there: frozenset[str]) -> Variant | None:
    """The variant whose names are there, or one of them where series appear with their first event. None: not
    exposed, or nothing has happened yet (`counts_as_zero`)."""
    for variant in query.variants:
        names = names_of(query, variant)
        if variant.engine == engine and (
            any(name in there for name in names) if variant.born_late else there.issuperset(names)
        ):
            return variant
    return None


def counts_as_zero(query: Query, *, engine: str, there: frozenset[str]) -> Variant | None:
    """The variant whose series have not been born yet, though everything that would make them is there."""
    for variant in query.variants:
        if variant.engine == engine and variant.born_late and (not variant.proof or variant.proof in there):
            return variant
    return None


def why_not_exposed(query: Query, *, engine: str, version: str) -> str:
    """A sentence for a metric that is missing on pods that are scraped."""
    name = f"{ENGINE_NAMES[engine]} {version}".strip()
    ours = [variant for variant in query.variants if variant.engine == engine]
    if not ours:
        return f"{name} exposes nothing that says this."
    wanted = " or ".join(
        dict.fromkeys(
            variant.top.name + (f" (from {variant.since} on)" if variant.since else "") for variant in ours
        )
    )
    return f"{name} does not expose {wanted} here."
