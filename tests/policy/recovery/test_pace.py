"""A rollout anew has two rows, whatever the sizes: the whole new side first, then the old side goes at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.recovery.pace import whole_surge
from policy.rollout.planner import plan

SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=6)


@given(SIZES)
def test_two_rows_for_every_pair_of_sizes(sizes: list[tuple[int, int]]) -> None:
    initial, target = [old for old, _ in sizes], [new for _, new in sizes]
    rows = plan(
        initial=initial,
        target=target,
        surge=[whole_surge(new, old) for old, new in sizes],
        unavailable=[0] * len(sizes),
    )
    assert [(list(row.old), list(row.new)) for row in rows] == [
        (initial, [0] * len(sizes)),
        (initial, target),
        ([0] * len(sizes), target),
    ]


def test_a_percentage_would_drain_before_it_has_grown() -> None:
    """The reason for an absolute number: 100 % of the target is too little where fewer groups come back."""
    rows = plan(initial=[4, 4], target=[2, 2], surge=[2, 2], unavailable=[0, 0])
    assert any(row.new != (2, 2) and sum(row.old) < 8 for row in rows)
