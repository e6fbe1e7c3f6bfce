from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.rollout.holds import (
    EVERY_ROW,
    FIRST_COMPLETE_ROW,
    HALF,
    LAST_OLD_GROUPS,
    HoldRow,
    PlanView,
    UnknownHoldRule,
    check_rules,
    find_holds,
    minimum_ready,
    ready_groups,
    total_peak_devices,
    view_plan,
)
from policy.rollout.planner import executor_rows, plan

Counts = tuple[int, ...]


def view(
    initial: Counts,
    surge: Counts,
    unavailable: Counts,
    *,
    rules: tuple[str, ...] = (FIRST_COMPLETE_ROW, HALF),
    target: Counts | None = None,
    devices: tuple[Counts, Counts] | None = None,
    minimum: Counts | None = None,
) -> PlanView:
    goal = target or initial
    rows = plan(initial=initial, target=goal, surge=surge, unavailable=unavailable)
    ones = (1,) * len(initial)
    return view_plan(
        executor_rows(rows, target=goal),
        rules=rules,
        target=goal,
        minimum=minimum or minimum_ready(initial=initial, target=goal, unavailable=unavailable),
        old_devices=devices[0] if devices else ones,
        new_devices=devices[1] if devices else ones,
    )


def test_holds_of_six_prefill_and_two_decode() -> None:
    seen = view((6, 2), (1, 1), (0, 0))
    assert seen.holds.rows == (
        HoldRow(1, (FIRST_COMPLETE_ROW,)),
        HoldRow(5, (HALF,)),
        HoldRow(11, (LAST_OLD_GROUPS,)),
    )
    assert seen.holds.unmet == ()
    assert [(row.old, row.new) for row in seen.rows if row.holds] == [
        ((6, 2), (1, 1)),
        ((4, 2), (3, 1)),
        ((1, 1), (6, 2)),
    ]
    assert seen.least_ready == (6, 2)
    assert seen.peak_groups == (7, 3)


def test_the_last_old_groups_are_always_a_hold() -> None:
    assert view((4, 2), (1, 1), (0, 0), rules=()).holds.rows[0].rules == (LAST_OLD_GROUPS,)
    assert check_rules(()) == (LAST_OLD_GROUPS,)
    assert check_rules((LAST_OLD_GROUPS, HALF, HALF)) == (HALF, LAST_OLD_GROUPS)


def test_blue_green_stops_once_with_everything_doubled() -> None:
    seen = view((4, 2), (4, 2), (0, 0))
    assert seen.holds.rows == (HoldRow(1, (FIRST_COMPLETE_ROW, HALF, LAST_OLD_GROUPS)),)
    assert seen.peak_devices == 12


def test_every_row_leaves_out_the_start_and_the_end() -> None:
    seen = view((4, 4), (1, 1), (0, 0), rules=(EVERY_ROW,))
    assert [hold.row for hold in seen.holds.rows] == list(range(1, len(seen.rows) - 1))


def test_without_surge_the_first_mixed_row_can_be_an_outage() -> None:
    seen = view((2, 1), (0, 0), (1, 1))
    assert [row.ready for row in seen.rows] == [(2, 1), (1, 1), (0, 0), (1, 1)]
    assert [row.short for row in seen.rows] == [(), (), (0, 1), ()]
    assert seen.holds.unmet == (FIRST_COMPLETE_ROW, HALF)
    assert seen.holds.rows == (HoldRow(1, (LAST_OLD_GROUPS,)),)


def test_four_prefill_and_one_decode_without_surge_lose_half_at_the_end() -> None:
    seen = view((4, 1), (0, 0), (1, 1))
    assert seen.holds.rows[0] == HoldRow(2, (FIRST_COMPLETE_ROW,))
    assert {row.row: row.ready for row in seen.rows if row.short} == {6: (2, 1)}
    assert seen.least_ready == (2, 1)
    assert seen.peak_groups == (4, 2)


def test_a_swap_without_any_capacity_has_no_row_to_stop_at() -> None:
    seen = view((4, 4), (0, 0), (4, 4))
    assert seen.holds.unmet == (FIRST_COMPLETE_ROW, HALF)
    assert seen.holds.rows == (HoldRow(0, (LAST_OLD_GROUPS,)),)


def test_a_higher_minimum_moves_the_hold_to_a_later_row() -> None:
    usual = view((6, 6), (1, 1), (2, 2))
    strict = view((6, 6), (1, 1), (2, 2), minimum=(7, 7))
    assert usual.holds.rows[0].row == 1
    assert strict.holds.unmet == (FIRST_COMPLETE_ROW, HALF)


@pytest.mark.parametrize(
    ("initial", "target", "unavailable", "expected"),
    [
        ((4, 2), (4, 2), (0, 0), (4, 2)),
        ((4, 2), (6, 1), (1, 0), (3, 1)),
        ((1, 1), (1, 1), (1, 5), (1, 1)),
        ((4, 0, 2), (4, 2, 0), (0, 0, 0), (4, 0, 0)),
    ],
)
def test_default_minimum(initial: Counts, target: Counts, unavailable: Counts, expected: Counts) -> None:
    assert minimum_ready(initial=initial, target=target, unavailable=unavailable) == expected


def test_an_added_role_needs_one_new_group_but_no_ready_one() -> None:
    seen = view((4, 6, 0), (1, 1, 1), (0, 0, 0), target=(4, 6, 2))
    assert seen.holds.rows[0] == HoldRow(1, (FIRST_COMPLETE_ROW,))


def test_devices_differ_between_the_templates() -> None:
    seen = view((2, 1), (1, 1), (0, 0), devices=((8, 4), (4, 4)))
    assert [row.devices for row in seen.rows] == [20, 28, 20, 24, 12]
    assert [(row.old, row.new) for row in seen.rows] == [
        ((2, 1), (0, 0)),
        ((2, 1), (1, 1)),
        ((1, 1), (1, 1)),
        ((1, 1), (2, 1)),
        ((0, 0), (2, 1)),
    ]
    assert (seen.peak_devices, seen.peak_row) == (28, 1)


def test_a_row_that_moves_both_sides_can_occupy_more_for_a_moment() -> None:
    seen = view((10, 10), (3, 3), (0, 0))
    assert seen.peak_groups == (13, 13)
    assert seen.peak_devices == 26
    assert seen.passing_devices == 32  # 8,8 old still there while new grows to 8,8


def test_total_of_several_slices() -> None:
    seen = view((4, 2), (1, 1), (0, 0), devices=((8, 8), (8, 8)))
    assert seen.peak_devices == 64
    assert total_peak_devices(seen, slices=3, at_once=1) == 64 + 2 * 48
    assert total_peak_devices(seen, slices=3, at_once=3) == 3 * 64


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UnknownHoldRule, match="first-row") as caught:
        check_rules(["half", "first-row"])
    assert caught.value.rule == "first-row"
    with pytest.raises(ValueError, match="start row"):
        view_plan((), rules=(), target=(), minimum=(), old_devices=(), new_devices=())


counts = st.integers(1, 12)


@given(st.data())
@settings(max_examples=300)
def test_with_surge_there_is_always_a_place_to_stop(data: st.DataObject) -> None:
    roles = data.draw(st.integers(2, 4))
    initial = data.draw(st.tuples(*[counts] * roles))
    surge = data.draw(st.tuples(*[st.integers(1, 4)] * roles))
    unavailable = (0,) * roles
    rows = executor_rows(
        plan(initial=initial, target=initial, surge=surge, unavailable=unavailable), target=initial
    )
    minimum = minimum_ready(initial=initial, target=initial, unavailable=unavailable)
    holds = find_holds(rows, rules=(FIRST_COMPLETE_ROW, HALF), target=initial, minimum=minimum)
    assert holds.unmet == ()
    ready = ready_groups(rows)
    for hold in holds.rows:
        assert 0 < hold.row < len(rows) - 1
        assert all(r >= m for r, m in zip(ready[hold.row], minimum, strict=True))
    last = next(hold.row for hold in holds.rows if LAST_OLD_GROUPS in hold.rules)
    assert any(rows[last].old)
    assert not any(any(row.old) for row in rows[last + 1 :])
