"""What a verdict is made of: values with their sources, findings, missing facts, factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policy.rollout.hazard import Severity
from policy.transfer.values import Side

Outcome = Literal["incompatible", "dangerous", "unknown", "slow", "compatible"]
State = Literal["equal", "different", "unknown"]

# Worst first. Unknown stands before slow: "slow" says that all else is known to fit.
OUTCOMES: tuple[Outcome, ...] = ("incompatible", "dangerous", "unknown", "slow", "compatible")


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as a page shows it, and where it was read."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found about a pair. `makes` is the outcome it leads to, None for a remark."""

    id: str
    factor: str
    makes: Outcome | None
    severity: Severity
    sentence: str
    next_action: str
    prefill: Shown
    decode: Shown


@dataclass(frozen=True, slots=True)
class MissingFact:
    """A fact without which the pair cannot be called compatible, and where it can be had."""

    side: Side | Literal["both"]
    factor: str
    fact: str
    where: str


@dataclass(frozen=True, slots=True)
class Factor:
    """One compared factor. `because` says what a state rests on that the two values do not show."""

    id: str
    label: str
    state: State
    prefill: Shown
    decode: Shown
    because: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict for one prefill and one decode. `rests_on` says what a "compatible" relies on."""

    outcome: Outcome
    sentence: str
    findings: tuple[Finding, ...]
    missing: tuple[MissingFact, ...]
    factors: tuple[Factor, ...]
    rests_on: tuple[str, ...] = ()
    by_identity: bool = False

    @property
    def may_meet(self) -> bool:
        """Whether a router may pair the two."""
        return self.outcome in ("compatible", "slow")


SEVERITIES: dict[Outcome | None, Severity] = {
    "incompatible": "block",
    "dangerous": "block",
    "unknown": "warn",
    "slow": "warn",
    "compatible": "info",
    None: "info",
}
NOTHING = Shown("", "")


def finding(
    id: str,
    factor: str,
    makes: Outcome | None,
    sentence: str,
    next_action: str,
    prefill: Shown = NOTHING,
    decode: Shown = NOTHING,
) -> Finding:
    """A finding with the severity that its outcome has."""
    return Finding(id, factor, makes, SEVERITIES[makes], sentence, next_action, prefill, decode)
