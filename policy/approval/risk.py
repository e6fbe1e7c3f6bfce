"""The risk class of a plan, with the reasons a voter reads.

The environment sets where a class starts and where it ends; facts of the plan move it up one class each.
Facts never move it down: a plan cannot argue itself out of a vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["low", "medium", "high"]
Environment: TypeAlias = Literal["development", "staging", "production"]

LOW: Level = "low"
MEDIUM: Level = "medium"
HIGH: Level = "high"
LEVELS: tuple[Level, ...] = (LOW, MEDIUM, HIGH)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is: a stable kebab-case code and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class RiskPolicy:
    """What an installation calls risky. `span` gives each environment its first and last class."""

    span: Mapping[Environment, tuple[Level, Level]]
    large_peak_devices: int


DEFAULT_POLICY = RiskPolicy(
    span={"development": (LOW, LOW), "staging": (LOW, MEDIUM), "production": (MEDIUM, HIGH)},
    large_peak_devices=64,
)


@dataclass(frozen=True, slots=True)
class RiskFacts:
    """What of a plan bears on its risk.

    Device counts are whole accelerators: held now, and at the plan's largest row. `roles_without_surge` are
    the roles with S=0. `off_default_bounds` names every bound the requester moved away from its default, such
    as `minimum ready of decode: 1 instead of 2` or `hold "first complete row" left out`. `fast_profile` is a
    plan that passes rows without waiting, as going back to a recorded combination does.
    """

    environment: Environment
    devices_now: int
    peak_devices: int
    roles_without_surge: tuple[str, ...] = ()
    off_default_bounds: tuple[str, ...] = ()
    fast_profile: bool = False


@dataclass(frozen=True, slots=True)
class Risk:
    """A class and everything that led to it; the first reason is the environment's."""

    level: Level
    reasons: tuple[Reason, ...]


def assess_risk(facts: RiskFacts, policy: RiskPolicy = DEFAULT_POLICY) -> Risk:
    """The class of a plan: the environment's first class, one higher for each raising fact, up to its last.

    Raising facts: a role without surge, a bound off its default, a peak of many devices, the fast profile.
    All of them are listed even where the last class is reached, so that a voter sees each.
    """
    first, last = policy.span[facts.environment]
    raising = _raising_facts(facts, policy)
    rank = min(LEVELS.index(first) + len(raising), max(LEVELS.index(first), LEVELS.index(last)))
    base = Reason("environment", f"{facts.environment} changes start at {first} risk and end at {last}.")
    return Risk(level=LEVELS[rank], reasons=(base, *raising))


def is_higher(level: Level, than: Level) -> bool:
    """Whether the first class asks for more than the second."""
    return LEVELS.index(level) > LEVELS.index(than)


def _raising_facts(facts: RiskFacts, policy: RiskPolicy) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if facts.roles_without_surge:
        names = ", ".join(facts.roles_without_surge)
        reasons.append(
            Reason(
                "no-surge", f"No surge for {names}: old groups go before new ones serve, so capacity dips."
            )
        )
    if facts.off_default_bounds:
        listed = "; ".join(facts.off_default_bounds)
        reasons.append(Reason("bounds-off-default", f"Bounds differ from the defaults: {listed}."))
    if facts.peak_devices >= policy.large_peak_devices:
        reasons.append(
            Reason(
                "large-peak",
                f"{facts.peak_devices} devices at the peak, {facts.devices_now} now; "
                f"from {policy.large_peak_devices} on a plan counts as large.",
            )
        )
    if facts.fast_profile:
        reasons.append(Reason("fast-profile", "Rows are passed without the usual waits."))
    return tuple(reasons)
