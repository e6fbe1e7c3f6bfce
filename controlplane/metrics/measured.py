"""What a reader gets: a number, or which of three absences it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from policy.gates.gate import Measurement


class State(StrEnum):
    """The four display states. Only VALUE has a number."""

    VALUE = "value"
    NO_TRAFFIC = "no-traffic"  # scraped and exposed, but nothing happened in the window
    NO_DATA = "no-data"  # nobody scrapes it, or not long enough
    NOT_EXPOSED = "not-exposed"  # scraped, but this engine or version has no such metric


# Notes: what a number is worth, in codes.
SINCE_START = (
    "since-start"  # everything since the pods' start, not only the window: they are younger than two
)
HISTORY_SHORT = "history-short"  # the source remembers less than two windows: first scrapes are not counted
FEW_SCRAPES = "few-scrapes"  # the window holds fewer than four scrapes
FEW_SAMPLES = "few-samples"  # fewer observations than a verdict needs
LEAST_SCRAPES = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of one role of one revision incarnation, or of a router.

    `stat` says what the number is (`value`, `p95`, `mean`, `count`); `instead_of` what was asked for where that
    could not be had. `labels` are further labels (`priority`, `endpoint`, …). `count` is how many
    observations are behind it (for a gauge: scrapes in the window), `enough` whether they suffice for a
    verdict. `at_least`: the number is a lower bound. `at` is when the source computed it and `age_s` how old
    the newest scrape was then, both on its clock. `window_s` is the time that is covered. `bounds` are the
    finite bucket bounds of a quantile. `reason` is a sentence where there is no number. `query` gives the
    number by itself when asked at `at`.
    """

    name: str
    stat: str
    state: State
    value: float | None
    unit: str
    role: str
    revision: str
    at: float
    window_s: float
    query: str = ""
    labels: Mapping[str, str] | None = None
    count: float | None = None
    enough: bool = False
    at_least: bool = False
    instead_of: str = ""
    started_at: float | None = None
    age_s: float | None = None
    engine: str = ""
    version: str = ""
    bounds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""

    def as_facts(self) -> dict[str, Any]:
        """As JSON values, for evidence."""
        return asdict(self) | {"state": self.state.value, "labels": dict(self.labels or {})}

    def as_measurement(self, *, baseline: Measurement | None = None) -> Measurement:
        """As the gates take it. A mean in place of the quantile that was asked for is no value of it."""
        stand_in = bool(self.instead_of)
        return Measurement(
            state="no-data" if stand_in else self.state.value,
            value=None if stand_in else self.value,
            samples=math.floor(self.count or 0),
            age_s=self.age_s,
            at_least=self.at_least,
            revision=self.revision,
            engine=self.engine,
            version=self.version or None,
            buckets=self.bounds,
            baseline=baseline,
            note=f"{self.instead_of} cannot be had, only the mean" if stand_in else self.reason.rstrip("."),
        )
