"""How fast one role may move: surge and unavailable groups, by the rules of API server and controller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PERCENT = re.compile(r"([+-]?[0-9]+)%")


@dataclass(frozen=True, slots=True)
class Pace:
    """Groups of one role that a rollout may add above (`surge`) or take below (`unavailable`) its target."""

    surge: int
    unavailable: int


DEFAULT_PACE = Pace(surge=1, unavailable=0)


def with_crd_defaults(configuration: Mapping[str, object]) -> dict[str, object]:
    """The block as the API server stores it: a missing maxUnavailable is 1, a missing maxSurge is 0.

    Source: DisaggregatedSet CRD of lws v0.9.0. The defaults exist only inside a block that is present.
    """
    return {"maxSurge": 0, "maxUnavailable": 1, **{k: v for k, v in configuration.items() if v is not None}}


def resolve_pace(rolling_update_configuration: Mapping[str, object] | None, replicas: int) -> Pace:
    """Surge and unavailable groups of a role with `replicas` target groups.

    `rolling_update_configuration` is the mapping at `spec.rolloutStrategy.rollingUpdateConfiguration` of the
    role, None where it is absent (also for a role that is being removed): 1 and 0. Percent of `replicas`,
    surge rounded up, unavailable rounded down; text that is not a percent counts as 0; both 0 means 1 and 0
    (executor of lws v0.9.0). Raises ValueError when `replicas` is negative.
    """
    if replicas < 0:
        raise ValueError(f"replicas is negative: {replicas}")
    if rolling_update_configuration is None:
        return DEFAULT_PACE
    stored = with_crd_defaults(rolling_update_configuration)
    surge = max(0, groups_of(stored["maxSurge"], replicas, up=True))
    unavailable = max(0, groups_of(stored["maxUnavailable"], replicas, up=False))
    if surge == 0 and unavailable == 0:
        return DEFAULT_PACE
    return Pace(surge=surge, unavailable=unavailable)


def is_percent(value: object) -> bool:
    """True for text such as "25%"."""
    return isinstance(value, str) and _PERCENT.fullmatch(value) is not None


def groups_of(value: object, replicas: int, *, up: bool) -> int:
    """Groups that a number or a percent of `replicas` stands for, rounded up or down; 0 for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return 0
    hundredths = int(match[1]) * replicas
    return -(-hundredths // 100) if up else hundredths // 100
