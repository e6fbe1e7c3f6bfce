"""Going on from a state that is no row of the plan: the rows that the controller would take from there."""

from __future__ import annotations

from collections.abc import Sequence

from policy.rollout.planner import START, Row, next_row


def rows_from(
    *,
    initial: Sequence[int],
    old: Sequence[int],
    new: Sequence[int],
    target: Sequence[int],
    surge: Sequence[int],
    unavailable: Sequence[int],
) -> tuple[Row, ...]:
    """Planner rows from the state (`old`, `new`) to the end, that state first; one entry per role.

    Where the planner would give a role of the old side a group back (to keep that revision whole), the controller
    does not: it only ever drains the old side (lws v0.9.0 executor). Such a row stands without it. Raises ValueError
    as the planner does.
    """
    rows = [Row(tuple(old), tuple(new), START)]
    for _ in range(sum(initial) + sum(target) + sum(old) + 1):
        row = next_row(
            initial=initial,
            old=rows[-1].old,
            new=rows[-1].new,
            target=target,
            surge=surge,
            unavailable=unavailable,
        )
        if row is None:
            break
        drained = Row(tuple(map(min, rows[-1].old, row.old)), row.new, row.kind)
        if (drained.old, drained.new) == (rows[-1].old, rows[-1].new):
            break
        rows.append(drained)
    return tuple(rows)
