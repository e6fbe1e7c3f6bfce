"""What a gate asks for, what was measured, and what is made of the two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Comparison: TypeAlias = Literal["at-most", "at-least"]
State: TypeAlias = Literal["value", "no-traffic", "no-data", "not-exposed"]
Verdict: TypeAlias = Literal["green", "red", "not-evaluable"]
Unit: TypeAlias = Literal["ratio", "seconds", "count"]
# What a gate looks at. Only `transfer` and `output` say that the path works: a broken transfer can answer
# HTTP 200, in time, with garbage.
Evidence: TypeAlias = Literal["http", "timing", "transfer", "output", "capacity", "stability"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition.

    `metric` names a query; its histories across engine versions are in `versions`. With `relative` the limit is
    `threshold` times the baseline revision's value, made looser by `slack`; else it is `threshold`. A gate that is
    not `required` is shown and blocks nothing. `when_red` is the next action after red.
    """

    id: str
    label: str
    metric: str
    comparison: Comparison
    threshold: float
    unit: Unit
    evidence: Evidence
    window_s: int
    minimum_samples: int
    maximum_sample_age_s: float
    relative: bool = False
    slack: float = 0.0
    required: bool = True
    when_red: str = "Look at the revision's pods, then abort or promote with a reason."

    def __post_init__(self) -> None:
        """Raises ValueError for a gate that could be green without a measurement, or never."""
        numbers = (self.threshold, self.slack, self.maximum_sample_age_s)
        if not all(map(math.isfinite, numbers)) or self.slack < 0:
            raise ValueError(
                f"gate {self.id}: threshold, slack and age are finite numbers, slack not below 0"
            )
        if self.window_s < 1 or self.minimum_samples < 1 or self.maximum_sample_age_s <= 0:
            raise ValueError(f"gate {self.id}: window, minimum samples and age are above 0")
        if self.relative and self.threshold <= 0:
            raise ValueError(f"gate {self.id}: a part of the baseline is above 0")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured value of one revision, over the window of its gate.

    `value` counts only in state `value`; with `at_least` the truth may be larger (a quantile on the last bucket).
    `samples` are observations, not scrapes, except for gauges. `age_s` is the age of the newest sample by the
    metric source's own clock. `baseline` is the same of the baseline revision. `buckets` are the histogram bounds
    that a quantile comes from. `finding` is a fault found beside the number, as a sentence: it makes the gate red.
    `note` says why there is no value.
    """

    state: State
    value: float | None = None
    samples: int = 0
    age_s: float | None = None
    at_least: bool = False
    revision: str = ""
    engine: str = ""
    version: str | None = None
    buckets: tuple[float, ...] = ()
    baseline: Measurement | None = None
    finding: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A gate's verdict. `reason` is stable and kebab-case; `limit` is None where none could be formed."""

    gate: Gate
    verdict: Verdict
    reason: str
    sentence: str
    next_action: str
    value: float | None = None
    limit: float | None = None
    samples: int = 0
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Overall:
    """The verdict over all gates, with the ids of required gates that are red or say nothing.

    `advisory` are ids of gates that are not green and block nothing.
    """

    verdict: Verdict
    sentence: str
    next_action: str
    red: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    advisory: tuple[str, ...] = ()
