"""Reading named numbers of one set and its router: `measure` for one name, `measure_all` for several at one moment.

Every number belongs to a revision *incarnation*: a label comes back after a restore, with the same pod names, so no
sample from before the incarnation began may count. Runs in workers, never in a web request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from controlplane.metrics.client import Prometheus
from controlplane.metrics.endpoints import count_attempts
from controlplane.metrics.evaluate import Evaluated, Number, Scope, evaluate, text_of
from controlplane.metrics.measured import (
    FEW_SAMPLES,
    FEW_SCRAPES,
    HISTORY_SHORT,
    LEAST_SCRAPES,
    SINCE_START,
    Measured,
    State,
)
from controlplane.metrics.named import Kind, Query, Variant
from controlplane.metrics.promql import Reach, quote
from controlplane.metrics.queries import QUERIES
from controlplane.metrics.source import Source
from controlplane.metrics.survey import ROUTER, Survey, Target, look_at_engines, look_at_router, prefix_for
from controlplane.metrics.variants import choose_variant, counts_as_zero, why_not_exposed


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A revision label and when it began to live (unix seconds, cluster time). `version` of its engine where
    it is known, such as `0.30.0`."""

    revision: str
    started_at: float
    version: str = ""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The source's clock minus ours in seconds, known to within `uncertainty_s` either way."""

    offset_s: float
    uncertainty_s: float


def clock_offset(client: Prometheus, *, clock: Callable[[], float] = time.time) -> ClockOffset:
    """Compare the source's clock with `clock` (unix seconds). Raises MetricsError."""
    asked = clock()
    there = source_now(client)
    answered = clock()
    return ClockOffset(there - (asked + answered) / 2, (answered - asked) / 2)


def source_now(client: Prometheus) -> float:
    """The source's present in unix seconds."""
    return client.instant("time()").series[0].samples[-1].at
