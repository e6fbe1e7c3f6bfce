from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rollout.adopt import rows_from
from policy.rollout.planner import START, executor_rows, is_complete, next_row, plan

Counts = tuple[int, ...]


@st.composite
def off_plan(draw: st.DrawFn) -> dict[str, Counts]:
    """A rollout with surge, and any state in which the old side stands no higher than it began."""
    size = draw(st.integers(2, 3))

    def some(least: int, most: int) -> Counts:
        return tuple(draw(st.lists(st.integers(least, most), min_size=size, max_size=size)))

    initial, target = some(1, 6), some(1, 6)
    old = tuple(draw(st.integers(0, count)) for count in initial)
    new = tuple(draw(st.integers(0, count)) for count in target)
    return {
        "initial": initial,
        "old": old,
        "new": new,
        "target": target,
        "surge": some(1, 3),
        "unavailable": some(0, 2),
    }


@given(off_plan())
def test_every_row_is_the_controllers_next_and_the_last_is_the_end(case: dict[str, Counts]) -> None:
    rows = rows_from(**case)
    assert (rows[0].old, rows[0].new, rows[0].kind) == (case["old"], case["new"], START)
    still = {name: case[name] for name in ("initial", "target", "surge", "unavailable")}
    for before, after in zip(rows, rows[1:], strict=False):
        planned = next_row(old=before.old, new=before.new, **still)
        assert planned is not None
        assert (tuple(map(min, before.old, planned.old)), planned.new, planned.kind) == (
            after.old,
            after.new,
            after.kind,
        )
        assert all(b >= a for b, a in zip(before.old, after.old, strict=True)), "the old side never grows"
        assert all(b <= a for b, a in zip(before.new, after.new, strict=True)), "the new side never shrinks"
    last = executor_rows(rows, target=case["target"])[-1]
    assert is_complete(old=last.old, new=last.new, target=case["target"])


@given(off_plan())
def test_from_a_row_of_the_plan_it_is_the_rest_of_the_plan(case: dict[str, Counts]) -> None:
    still = {name: case[name] for name in ("initial", "target", "surge", "unavailable")}
    rows = plan(**still)
    for index, row in enumerate(rows):
        rest = rows_from(old=row.old, new=row.new, **still)
        assert [(r.old, r.new) for r in rest] == [(r.old, r.new) for r in rows[index:]]


def test_groups_that_somebody_took_away_early() -> None:
    """4 and 2 with surge 1 at the first complete row; break-glass took two prefill groups of the old side."""
    rows = rows_from(initial=(4, 2), old=(2, 2), new=(1, 1), target=(4, 2), surge=(1, 1), unavailable=(0, 0))
    assert [(row.old, row.new) for row in rows[:3]] == [((2, 2), (1, 1)), ((2, 2), (2, 1)), ((2, 1), (2, 1))]


def test_what_has_run_ahead_to_its_end_is_one_row() -> None:
    rows = rows_from(initial=(4, 2), old=(0, 0), new=(4, 2), target=(4, 2), surge=(1, 1), unavailable=(0, 0))
    assert [(row.old, row.new) for row in rows] == [((0, 0), (4, 2))]


def test_a_drained_old_side_is_jumped_from() -> None:
    rows = rows_from(initial=(4, 2), old=(0, 0), new=(1, 1), target=(4, 2), surge=(1, 1), unavailable=(0, 0))
    assert [(row.old, row.new) for row in executor_rows(rows, target=(4, 2))] == [
        ((0, 0), (1, 1)),
        ((0, 0), (4, 2)),
    ]


def test_lengths_are_checked() -> None:
    with pytest.raises(ValueError):
        rows_from(initial=(1, 1), old=(1,), new=(0, 0), target=(1, 1), surge=(1, 1), unavailable=(0, 0))


def test_a_role_of_the_old_side_that_is_gone_does_not_come_back() -> None:
    """The planner wants to keep the old revision whole (1, 1); the controller never grows it."""
    case = {"initial": (2, 2), "new": (1, 1), "target": (2, 2), "surge": (1, 1), "unavailable": (0, 0)}
    planned = next_row(old=(0, 2), **case)
    assert planned is not None and planned.old == (1, 1)
    rows = rows_from(old=(0, 2), **case)
    assert {row.old[0] for row in rows} == {0}
    assert (rows[-1].old, rows[-1].new) == ((0, 0), (2, 2))
