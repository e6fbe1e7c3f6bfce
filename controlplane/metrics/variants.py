"""Which variant of a named query fits an engine: what is there decides, the version only tells equal names apart."""

from __future__ import annotations

import re
from dataclasses import replace

from controlplane.metrics.named import ENGINE_NAMES, Query, Variant
from controlplane.metrics.survey import names_of

UNKNOWN = "unknown"


def choose_variant(query: Query, *, engine: str, there: frozenset[str], version: str) -> Variant | None:
    """The variant whose names are there; of several with the same names the one of this version. Without a
    version its `semantics` is `unknown` where versions differ. None: not exposed."""
    fitting = [variant for variant in query.variants if variant.engine == engine and _is_there(query, variant, there)]
    if not fitting:
        return None
    twins = [variant for variant in fitting if names_of(query, variant) == names_of(query, fitting[0])]
    if len(twins) == 1:
        return twins[0]
    for variant in twins:
        if version and covers(variant, version):
            return variant
    return replace(twins[-1], semantics=UNKNOWN)


def counts_as_zero(query: Query, *, engine: str, there: frozenset[str]) -> Variant | None:
    """The variant whose series have not been born yet, though everything that would make them is there."""
    for variant in query.variants:
        if variant.engine == engine and variant.born_late and (not variant.proof or variant.proof in there):
            return variant
    return None


def covers(variant: Variant, version: str) -> bool:
    """Whether a variant is that of a version; versions that cannot be read are covered by none."""
    numbers = _numbers(version)
    if not numbers:
        return False
    return _numbers(variant.since) <= numbers and (not variant.until or numbers < _numbers(variant.until))


def why_not_exposed(query: Query, *, engine: str, version: str) -> str:
    """A sentence for a metric that is missing on pods that are scraped."""
    name = f"{ENGINE_NAMES.get(engine, engine)} {version}".strip()
    ours = [variant for variant in query.variants if variant.engine == engine]
    if not ours:
        return f"{name} exposes nothing that says this."
    wanted = " or ".join(dict.fromkeys(variant.top.name for variant in ours))
    since = min((variant.since for variant in ours if variant.since), key=_numbers, default="")
    from_when = f"; it is known from {since} on" if since and not any(not v.since and not v.until for v in ours) else ""
    return f"{name} does not expose {wanted} here{from_when}."


def _is_there(query: Query, variant: Variant, there: frozenset[str]) -> bool:
    names = names_of(query, variant)
    return any(name in there for name in names) if variant.born_late else there.issuperset(names)


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 30, 0) of `0.30.0rc1+cu129` or `v0.30.0`."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()
