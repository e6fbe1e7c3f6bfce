"""Rows of a coordinated rollout of a DisaggregatedSet, as its controller computes them.

Every sequence has one entry per role: the roles of the set's spec in order, then roles that exist only in
old revisions. A count is a number of groups (LeaderWorkerSet replicas), not of pods. The rules are those of
the planner in lws v0.9.0, written over integers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Releases of lws whose planner is this one; the code is the same in all of them.
MATCHING_RELEASES = ("0.9", "0.10")

START = "start"
UP = "up"
DRAIN = "drain"
FORCE = "force"
CLAMP = "clamp"
FINAL = "final"
STEADY = "steady"
INIT = "init"


@dataclass(frozen=True, slots=True)
class Row:
    """One state of the planner: groups per role of the old side and of the new side, and how it was reached.

    `kind` is start, up (the new side grows), drain (the old side shrinks by its share), force (the old side
    makes room for a blocked growth, both sides may move), clamp (the old side is cut back to its initial
    counts), final (everything old goes at once), steady (the controller's jump to full size) or init.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What stays the same over a whole rollout, per role."""

    initial: tuple[int, ...]
    target: tuple[int, ...]
    ceiling: tuple[int, ...]  # old + new may reach this: T + S
    least: tuple[int, ...]  # old + new must keep this: T - U; 0 where the role grows (I < T)
    steps: int  # K: batches that the slowest role needs


def plan(
    *, initial: Sequence[int], target: Sequence[int], surge: Sequence[int], unavailable: Sequence[int]
) -> tuple[Row, ...]:
    """All rows from a clean start to the end, the start row first.

    Ends where the rollout is complete or where the planner has no step (that can only happen with surge and
    unavailable both 0; compare the last row by `is_complete`). The simulation in lws stops after 2 * max + 10
    rows; the controller does not, nor does this. Raises ValueError for sequences of unequal length or
    negative counts.
    """
    bounds = _bounds(initial, target, surge, unavailable)
    row = Row(bounds.initial, (0,) * len(bounds.initial), START)
    rows = [row]
    # A step moves at least one count by one towards its end, so a longer walk is a circle.
    for _ in range(sum(bounds.initial) + sum(bounds.target) + 1):
        step = _step(bounds, row.old, row.new)
        if step is None or (step.old == row.old and step.new == row.new):
            break
        rows.append(step)
        row = step
    return tuple(rows)


def next_row(
    *,
    initial: Sequence[int],
    old: Sequence[int],
    new: Sequence[int],
    target: Sequence[int],
    surge: Sequence[int],
    unavailable: Sequence[int],
) -> Row | None:
    """The row after the state (`old`, `new`), or None when the rollout is done or no step exists.

    The state need not be one that `plan` returns. Raises ValueError like `plan`.
    """
    bounds = _bounds(initial, target, surge, unavailable)
    _check_counts(len(bounds.initial), old=old, new=new)
    return _step(bounds, tuple(old), tuple(new))


def is_complete(*, old: Sequence[int], new: Sequence[int], target: Sequence[int]) -> bool:
    """True when no old group is left and every role has at least its target."""
    return not any(old) and all(n >= t for n, t in zip(new, target, strict=True))


def executor_rows(
    rows: Sequence[Row], *, target: Sequence[int], spec_roles: int | None = None
) -> tuple[Row, ...]:
    """What the controller makes of planner rows.

    As soon as no role of the spec has an old group, the controller leaves the planner and sets every role to
    its full target in one write, without waiting for readiness (lws v0.9.0, reconcile order). The rows after
    that are replaced by one row of kind "steady". `spec_roles` is how many of the leading roles are in the
    spec (all of them by default): old groups of other roles then stay where they are and leak.
    """
    count = len(target) if spec_roles is None else spec_roles
    for index, row in enumerate(rows):
        if any(row.old[:count]):
            continue
        full = tuple(target[:count]) + row.new[count:]
        kept = tuple(rows[: index + 1])
        return kept if row.new == full else (*kept, Row(row.old, full, STEADY))
    return tuple(rows)


def planner_matches(version: str | None) -> bool:
    """Whether the controller of this lws version ("v0.9.0") is known to compute these rows."""
    found = re.match(r"v?([0-9]+\.[0-9]+)\.[0-9]+", version or "")
    return found is not None and found[1] in MATCHING_RELEASES


def _bounds(
    initial: Sequence[int], target: Sequence[int], surge: Sequence[int], unavailable: Sequence[int]
) -> _Bounds:
    _check_counts(len(initial), initial=initial, target=target, surge=surge, unavailable=unavailable)
    steps = 0
    for i, t, s, u in zip(initial, target, surge, unavailable, strict=True):
        batch = s if s > 0 else max(1, u)
        steps = max(steps, -(-max(i, t) // batch))
    return _Bounds(
        initial=tuple(initial),
        target=tuple(target),
        ceiling=tuple(t + s for t, s in zip(target, surge, strict=True)),
        least=tuple(t - u if i >= t else 0 for i, t, u in zip(initial, target, unavailable, strict=True)),
        steps=steps,
    )


def _check_counts(roles: int, **counts: Sequence[int]) -> None:
    for name, values in counts.items():
        if len(values) != roles:
            raise ValueError(f"{name} has {len(values)} entries, expected one for each of {roles} roles")
        if values and min(values) < 0:
            raise ValueError(f"{name} has a negative count: {tuple(values)}")


def _step(bounds: _Bounds, old: tuple[int, ...], new: tuple[int, ...]) -> Row | None:
    grown = all(map(int.__ge__, new, bounds.target))
    if bounds.steps == 0 or (grown and not any(old)):
        return None
    if any(map(int.__gt__, old, bounds.initial)):
        return Row(tuple(map(min, old, bounds.initial)), new, CLAMP)
    if grown:
        return Row((0,) * len(old), new, FINAL)
    wanted = _next_new(bounds, new)
    if wanted != new and _fits(bounds, old, wanted):
        return Row(old, wanted, UP)
    drained = _proportional(bounds, old, new)
    if any(map(int.__lt__, drained, old)):
        return Row(drained, new, DRAIN)
    forced = _make_room(bounds, old, wanted)
    if any(map(int.__lt__, forced, old)):
        return Row(_keep_complete(bounds, forced, wanted), wanted, FORCE)
    return None


def _next_new(bounds: _Bounds, new: tuple[int, ...]) -> tuple[int, ...]:
    """The new side one batch further than its slowest role."""
    steps = bounds.steps
    batch = 1 + min(
        [n * steps // t if t else steps for n, t in zip(new, bounds.target, strict=True)] + [steps]
    )
    wanted = []
    for n, t in zip(new, bounds.target, strict=True):
        share = -(-batch * t // steps)
        if share > t:
            share = t
        wanted.append(share if share > n else n)
    return tuple(wanted)


def _fits(bounds: _Bounds, old: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Growth is all or nothing: one role without room holds every role back. Removed roles do not count."""
    for o, n, t, ceiling in zip(old, wanted, bounds.target, bounds.ceiling, strict=True):
        if t and o + n > ceiling:
            return False
    return True


def _proportional(bounds: _Bounds, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The old side one batch further than its fastest role, never under what must stay available."""
    steps = bounds.steps
    batch = 1
    for i, o in zip(bounds.initial, old, strict=True):
        if i:
            gone = 1 + (i - o) * steps // i
            if gone > batch:
                batch = gone
    drained = []
    for i, o, n, least in zip(bounds.initial, old, new, bounds.least, strict=True):
        left = i - batch * i // steps
        if left > o:
            left = o
        floor = least - n
        if left < floor:
            left = floor
        drained.append(left if left > 0 else 0)
    return _keep_complete(bounds, tuple(drained), new)


def _make_room(bounds: _Bounds, old: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The old side cut so that the blocked growth fits.

    The least that must stay counts the groups that this very step only starts: with surge 0 the ready
    capacity can fall below T - U here.
    """
    forced = []
    for o, n, ceiling, least in zip(old, wanted, bounds.ceiling, bounds.least, strict=True):
        room = ceiling - n
        left = room if room < o else o
        floor = least - n
        if left < floor:
            left = floor
        forced.append(left if left > 0 else 0)
    return tuple(forced)


def _keep_complete(bounds: _Bounds, left: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Keeps the old revision whole: its roles reach 0 together, or those at 0 keep one group."""
    if 0 not in left:
        return left
    emptied = [i > 0 and not o for i, o in zip(bounds.initial, left, strict=True)]
    if not any(emptied) or not any(o for i, o in zip(bounds.initial, left, strict=True) if i):
        return left
    if all(map(int.__ge__, new, bounds.least)):
        return (0,) * len(left)
    return tuple([1 if empty else o for empty, o in zip(emptied, left, strict=True)])
