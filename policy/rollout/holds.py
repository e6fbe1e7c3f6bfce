"""Where a rollout stops: hold rules become row numbers, and rows become what a plan shows.

Sequences have one entry per role, in the order of the rows. Row numbers count from 0, the start. Rows are
those that the controller really takes (`planner.executor_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policy.rollout.planner import Row

FIRST_COMPLETE_ROW = "first-complete-row"
HALF = "half"
LAST_OLD_GROUPS = "last-old-groups"
EVERY_ROW = "every-row"
RULES = (FIRST_COMPLETE_ROW, HALF, EVERY_ROW, LAST_OLD_GROUPS)


class UnknownHoldRule(ValueError):
    """A rule that does not exist. `rule` is its name as sent."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"hold rule {rule!r} does not exist; there are {', '.join(RULES)}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A row that the rollout may not pass by itself, and the rules that chose it."""

    row: int
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holds:
    """The holds of a plan in the order of their rows. `unmet` are rules that found no row to stop at."""

    rows: tuple[HoldRow, ...]
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowView:
    """One row as a plan shows it.

    `groups` (old + new) and `ready` are per role. `ready` is what serves right after the row is reached:
    groups that the row starts do not count yet. `devices` is what all its groups occupy. `short` holds the
    positions of roles whose ready groups are under the minimum. `holds` are the rules that stop here.
    """

    row: int
    kind: str
    old: tuple[int, ...]
    new: tuple[int, ...]
    groups: tuple[int, ...]
    ready: tuple[int, ...]
    devices: int
    short: tuple[int, ...]
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """All rows, with the bounds that an approval covers.

    `peak_devices` is the most that any row occupies, at `peak_row`. `passing_devices` can be more: a row is
    written as one patch per role and side, growth first, so for a moment both sides of a row that moves both
    stand. `least_ready` is per role the least that serves at any row, `minimum` what was asked for.
    """

    rows: tuple[RowView, ...]
    holds: Holds
    minimum: tuple[int, ...]
    least_ready: tuple[int, ...]
    peak_groups: tuple[int, ...]
    peak_devices: int
    peak_row: int
    passing_devices: int


def check_rules(rules: Iterable[str]) -> tuple[str, ...]:
    """The rules in their fixed order, once each, with the one that is always there: the last old groups.

    Raises UnknownHoldRule.
    """
    wanted = {LAST_OLD_GROUPS, *rules}
    for rule in sorted(wanted):
        if rule not in RULES:
            raise UnknownHoldRule(rule)
    return tuple(rule for rule in RULES if rule in wanted)


def minimum_ready(
    *, initial: Sequence[int], target: Sequence[int], unavailable: Sequence[int]
) -> tuple[int, ...]:
    """Ready groups per role that a rollout must keep by default: min(I, T) - U, at least 1.

    0 for a role that has no old groups (nothing serves it yet) and for one that is being removed.
    """
    return tuple(
        max(1, min(i, t) - u) if i and t else 0 for i, t, u in zip(initial, target, unavailable, strict=True)
    )


def ready_groups(rows: Sequence[Row]) -> tuple[tuple[int, ...], ...]:
    """Per row and role, the groups that serve right after the row is reached.

    What the row keeps of the old side, plus the new groups of the row before: the controller goes on only
    when those are ready. The old side is taken as ready at the start.
    """
    if not rows:
        return ()
    ready = [rows[0].old]
    for before, row in zip(rows, rows[1:], strict=False):
        ready.append(tuple(o + min(b, n) for o, b, n in zip(row.old, before.new, row.new, strict=True)))
    return tuple(ready)


def find_holds(
    rows: Sequence[Row], *, rules: Iterable[str], target: Sequence[int], minimum: Sequence[int]
) -> Holds:
    """Row numbers for the rules.

    A row can be a hold when something follows it and its ready groups are at least `minimum` in every role;
    the row before the last old groups go is one whatever they are. Raises UnknownHoldRule.
    """
    ready = ready_groups(rows)
    safe = [
        index
        for index in range(len(rows) - 1)
        if all(r >= least for r, least in zip(ready[index], minimum, strict=True))
    ]
    chosen: dict[int, list[str]] = {}
    unmet = []
    for rule in check_rules(rules):
        found = _rows_of_rule(rule, rows, safe, target)
        if not found:
            unmet.append(rule)
        for index in found:
            chosen.setdefault(index, []).append(rule)
    return Holds(
        rows=tuple(HoldRow(index, tuple(chosen[index])) for index in sorted(chosen)), unmet=tuple(unmet)
    )


def view_plan(
    rows: Sequence[Row],
    *,
    rules: Iterable[str],
    target: Sequence[int],
    minimum: Sequence[int],
    old_devices: Sequence[int],
    new_devices: Sequence[int],
) -> PlanView:
    """The rows with what they occupy, what serves and where they hold, for one slice.

    `old_devices` and `new_devices` are devices per group and role, of the live and of the planned template.
    Raises ValueError without rows, UnknownHoldRule for a rule that does not exist.
    """
    if not rows:
        raise ValueError("a plan has at least its start row")
    holds = find_holds(rows, rules=rules, target=target, minimum=minimum)
    stops = {hold.row: hold.rules for hold in holds.rows}
    ready = ready_groups(rows)
    views = tuple(
        _view_row(index, row, ready[index], minimum, (old_devices, new_devices), stops)
        for index, row in enumerate(rows)
    )
    peak = max(views, key=lambda view: view.devices)
    passing = [
        _devices(before.old, row.new, old_devices, new_devices)
        for before, row in zip(rows, rows[1:], strict=False)
    ]
    return PlanView(
        rows=views,
        holds=holds,
        minimum=tuple(minimum),
        least_ready=tuple(min(column) for column in zip(*ready, strict=True)),
        peak_groups=tuple(max(column) for column in zip(*(view.groups for view in views), strict=True)),
        peak_devices=peak.devices,
        peak_row=peak.row,
        passing_devices=max([peak.devices, *passing]),
    )


def total_peak_devices(view: PlanView, *, slices: int, at_once: int) -> int:
    """Devices of a whole set at its worst moment, when `at_once` of its `slices` roll at the same time."""
    rolling = min(slices, at_once)
    resting = max(view.rows[0].devices, view.rows[-1].devices)
    return rolling * view.peak_devices + (slices - rolling) * resting


def _rows_of_rule(
    rule: str, rows: Sequence[Row], safe: Sequence[int], target: Sequence[int]
) -> Sequence[int]:
    if rule == LAST_OLD_GROUPS:
        with_old = [index for index in range(len(rows) - 1) if any(rows[index].old)]
        return with_old[-1:]
    if rule == EVERY_ROW:
        return [index for index in safe if index]
    return next(([index] for index in safe if _far_enough(rule, rows[index].new, target)), [])


def _far_enough(rule: str, new: Sequence[int], target: Sequence[int]) -> bool:
    """Half of every role's target is new, or every role that has a target has a new group."""
    return all(2 * n >= t if rule == HALF else n > 0 for n, t in zip(new, target, strict=True) if t)


def _view_row(
    index: int,
    row: Row,
    ready: tuple[int, ...],
    minimum: Sequence[int],
    devices: tuple[Sequence[int], Sequence[int]],
    stops: Mapping[int, tuple[str, ...]],
) -> RowView:
    return RowView(
        row=index,
        kind=row.kind,
        old=row.old,
        new=row.new,
        groups=tuple(o + n for o, n in zip(row.old, row.new, strict=True)),
        ready=ready,
        devices=_devices(row.old, row.new, *devices),
        short=tuple(role for role, (r, least) in enumerate(zip(ready, minimum, strict=True)) if r < least),
        holds=stops.get(index, ()),
    )


def _devices(
    old: Sequence[int], new: Sequence[int], old_devices: Sequence[int], new_devices: Sequence[int]
) -> int:
    return sum(
        o * per_old + n * per_new
        for o, n, per_old, per_new in zip(old, new, old_devices, new_devices, strict=True)
    )
