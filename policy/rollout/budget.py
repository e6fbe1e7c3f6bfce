"""How a drain of the old side is spread over several old revisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class OldRevision:
    """Groups per role of one old revision. A role without an object of its own is absent, not 0.

    `created` is the newest creation time among its objects, as RFC 3339 text in UTC (it sorts as text).
    """

    revision: str
    created: str
    replicas: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Drain:
    """One old revision before and after a pass. `together` is set when it went to 0 as a whole."""

    revision: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    together: bool


def split_drain(*, budgets: Mapping[str, int], revisions: Sequence[OldRevision]) -> tuple[Drain, ...]:
    """What one pass of the controller leaves of each old revision, newest first.

    `budgets` holds, per role of the plan, the groups to take (old total now minus old total of the next row;
    it may be negative). A role of a revision that is not named in `budgets` is left alone. When a role of a
    revision would end at 0, or is there already, the whole revision goes to 0, even beyond the budgets, and
    only the roles that caused it are charged (executor of lws v0.9.0).
    """
    open_budgets = dict(budgets)
    drains = []
    for old in sorted(revisions, key=attrgetter("created"), reverse=True):
        drain = _drain_one(old, open_budgets)
        drains.append(drain)
    return tuple(drains)


def _drain_one(old: OldRevision, budgets: dict[str, int]) -> Drain:
    """Takes from one revision and charges `budgets` in place."""
    before = dict(old.replicas)
    if all(left <= 0 for left in budgets.values()):
        return Drain(old.revision, before, before, together=False)
    take = {role: min(budgets[role], count) for role, count in before.items() if role in budgets}
    emptied = {role for role, taken in take.items() if before[role] == taken}
    after = dict(before)
    for role, taken in take.items():
        left = 0 if emptied else before[role] - taken
        if left >= before[role]:
            continue
        after[role] = left
        if not emptied or role in emptied:
            budgets[role] -= taken
    return Drain(old.revision, before, after, together=bool(emptied))
