"""Metrics that mean different things in different engine versions.

Read in the engines' own code, release by release; versions between two that were read belong to no era, and what
belongs to no era is comparable with nothing but itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Era:
    """Versions, by (major, minor) and both included, in which a metric means one thing. `last` None: until now."""

    first: tuple[int, int]
    last: tuple[int, int] | None
    meaning: str

    def covers(self, version: tuple[int, int]) -> bool:
        """Whether the version is in the era."""
        return self.first <= version and (self.last is None or version <= self.last)


@dataclass(frozen=True, slots=True)
class History:
    """The life of one metric in one engine.

    `since` is the first version known to expose it. Before `sees_from` a good value proves nothing, for the reason
    in `blind`, a part of a sentence.
    """

    engine: str
    metric: str
    since: tuple[int, int]
    eras: tuple[Era, ...]
    sees_from: tuple[int, int] = (0, 0)
    blind: str = ""

    def era(self, version: str | None) -> Era | None:
        """The era of a version; None where that is not known."""
        read = read_version(version)
        return next((era for era in self.eras if read is not None and era.covers(read)), None)


HISTORIES = (
    History(
        "vllm",
        "failed_transfers_ratio",
        (0, 14),
        (
            Era((0, 20), (0, 20), "failed transfers, not failed handshakes"),
            Era((0, 23), (0, 30), "a failed handshake once per waiting request and rank"),
            Era((0, 33), None, "a failed handshake once, failed notifications too, lease expiry not"),
        ),
        sees_from=(0, 23),
        blind="before 0.23 a failed handshake may not be counted, so an incompatible pair reads as no failures",
    ),
    History(
        "vllm",
        "expired_leases_ratio",
        (0, 17),
        (
            Era((0, 17), (0, 21), "blocks kept for a fixed time of minutes"),
            Era((0, 22), None, "a lease of seconds that decode extends"),
        ),
    ),
    History("vllm", "disaggregated_share", (0, 17), (Era((0, 17), None, "prompt tokens by source"),)),
)


def read_version(text: str | None) -> tuple[int, int] | None:
    """(major, minor) of `0.33.0`, `v0.30.0rc1`, `0.33.0.dev4+g1a2b`; None of anything else."""
    found = _VERSION.match(text or "")
    return (int(found[1]), int(found[2])) if found else None


def history_of(engine: str, metric: str) -> History | None:
    """The history of a metric; None where it always meant the same, or nothing is known."""
    return next((each for each in HISTORIES if (each.engine, each.metric) == (engine, metric)), None)


def why_hidden(engine: str, metric: str, version: str | None) -> str:
    """Why this version does not expose the metric, as a part of a sentence; empty where it does, as far as known."""
    history, read = history_of(engine, metric), read_version(version)
    if history is None or read is None or read >= history.since:
        return ""
    return f"{engine} {version} does not expose it; {_dotted(history.since)} does"


def why_blind(engine: str, metric: str, version: str | None) -> str:
    """Why a good value of this version proves nothing, as a part of a sentence; empty where it proves something."""
    history, read = _any_history(engine, metric), read_version(version)
    if history is None or not history.blind or (read is not None and read >= history.sees_from):
        return ""
    return f"the engine runs {version or 'a version that is not known'}, and {history.blind}"


def why_not_comparable(engine: str, metric: str, version: str | None, other: str | None) -> str:
    """Why values of two versions are not to be compared; empty where they are."""
    history = _any_history(engine, metric)
    if history is None or (version is not None and version == other):
        return ""
    if version is None or other is None:
        return "the engine versions of both revisions are not known, and the meaning changed between versions"
    one, two = history.era(version), history.era(other)
    if one is not None and one is two:
        return ""
    said = [
        f"{each} counts {era.meaning if era else 'what nobody read'}"
        for each, era in ((version, one), (other, two))
    ]
    return " and ".join(said)


def _any_history(engine: str, metric: str) -> History | None:
    """That of the engine; where the engine is not known, of any that has one."""
    found = history_of(engine, metric)
    if found is not None or engine:
        return found
    return next((each for each in HISTORIES if each.metric == metric), None)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
