from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rollout.box import Box, Key, abort_box, box_from_data, forward_box, frozen_box
from policy.rollout.planner import Row, executor_rows, plan

ROLES = ("prefill", "decode", "encode")
OLD, NEW, OTHER = "aaaa1111", "bbbb2222", "cccc3333"
counts_of_roles = st.integers(2, 3).flatmap(
    lambda size: st.tuples(
        *[
            st.lists(st.integers(least, most), min_size=size, max_size=size).map(tuple)
            for least, most in ((1, 7), (1, 7), (1, 3), (0, 2))
        ]
    )
)
keys = st.tuples(
    st.sampled_from(["0", "1", "12"]), st.sampled_from([OLD, NEW, OTHER]), st.sampled_from(ROLES)
)
live = st.dictionaries(keys, st.integers(0, 9), max_size=12)


def walk(
    initial: tuple[int, ...], target: tuple[int, ...], surge: tuple[int, ...], unavailable: tuple[int, ...]
) -> tuple[Row, ...]:
    return executor_rows(
        plan(initial=initial, target=target, surge=surge, unavailable=unavailable), target=target
    )


def may_go(box: Box, key: Key, was: int, now: int) -> bool:
    """The shipped admission policy: down is limited by the floor, up by the ceiling, what is not named has 0."""
    if now < was:
        return now >= box.floors.get(key, 0)
    return now <= box.ceilings.get(key, 0)


def side(row: Row, slice_name: str) -> dict[Key, int]:
    found = {(slice_name, OLD, role): count for role, count in zip(ROLES, row.old, strict=False)}
    return found | {(slice_name, NEW, role): count for role, count in zip(ROLES, row.new, strict=False)}


@given(counts_of_roles)
def test_a_forward_box_is_exactly_a_row(case: tuple[tuple[int, ...], ...]) -> None:
    """From the row before, every count may move to the row and not one group beyond; backwards only the old side."""
    rows = walk(*case)
    for index, row in enumerate(rows):
        box = forward_box(roles=ROLES[: len(row.old)], rows=rows, slice_rows={"0": index}, old=OLD, new=NEW)
        assert box.breaches(side(row, "0")) == []
        before = side(rows[max(0, index - 1)], "0")
        for key, count in side(row, "0").items():
            assert may_go(box, key, before[key], count)
            if key[1] == NEW:
                assert not may_go(box, key, count, count + 1), "the new side never runs ahead"
            elif count:
                assert not may_go(box, key, count, count - 1), "the old side never goes early"
                assert may_go(box, key, count, side(rows[0], "0")[key]), "an abort by hand works"
                assert not may_go(box, key, count, side(rows[0], "0")[key] + 1)
        assert not may_go(box, ("0", OTHER, "prefill"), 0, 1), "a revision that nobody named never starts"


def test_before_the_label_is_known_nothing_new_may_grow() -> None:
    rows = walk((4, 2), (4, 2), (1, 1), (0, 0))
    box = forward_box(roles=ROLES[:2], rows=rows, slice_rows={"0": 0}, old=OLD, new="")
    assert not may_go(box, ("0", NEW, "prefill"), 0, 1)
    assert box.as_data() == {
        f"floor.0.{OLD}.prefill": "4",
        f"floor.0.{OLD}.decode": "2",
        f"ceil.0.{OLD}.prefill": "4",
        f"ceil.0.{OLD}.decode": "2",
    }


def test_a_slice_that_waits_stays_at_its_start() -> None:
    rows = walk((4, 2), (4, 2), (1, 1), (0, 0))
    box = forward_box(roles=ROLES[:2], rows=rows, slice_rows={"0": 3, "1": 0}, old=OLD, new=NEW)
    assert {key: count for key, count in box.ceilings.items() if key[:2] == ("1", NEW)} == {
        ("1", NEW, "prefill"): 0,
        ("1", NEW, "decode"): 0,
    }
    assert (box.floors["1", OLD, "prefill"], box.floors["0", OLD, "prefill"]) == (4, 3)
    assert box.ceilings["0", NEW, "prefill"] == 2


def test_a_role_that_one_side_never_had_has_no_floor() -> None:
    rows = (Row((2, 0), (0, 0), "start"), Row((2, 0), (1, 1), "up"))
    box = forward_box(roles=("prefill", "encode"), rows=rows, slice_rows={"0": 1}, old=OLD, new=NEW)
    assert ("0", OLD, "encode") not in box.floors and ("0", OLD, "encode") not in box.ceilings


@given(live, live, live, st.dictionaries(st.sampled_from(ROLES), st.integers(0, 9)))
def test_the_way_back_lets_nothing_but_the_old_revision_grow(
    floors: Mapping[Key, int], ceilings: Mapping[Key, int], now: Mapping[Key, int], goal: Mapping[str, int]
) -> None:
    box = abort_box(forward=Box(floors, ceilings), counts=now, old=OLD, goal=goal)
    for key in {*now, *box.floors, *box.ceilings, ("0", "dddd4444", "prefill")}:
        count = now.get(key, 0)
        if key[1] != OLD:
            assert not may_go(box, key, count, count + 1)
            assert all(may_go(box, key, count, less) for less in range(count)), "it may shrink to nothing"
    slices = {key[0] for key in {*floors, *ceilings, *now}}
    for slice_name in slices:
        for role, wanted in goal.items():
            key = (slice_name, OLD, role)
            count = now.get(key, 0)
            assert may_go(box, key, count, wanted) or wanted < count, "it may always reach its goal"
            assert not may_go(box, key, count, max(wanted, count) + 1), "and no further"
            if wanted < count:
                assert may_go(box, key, count, wanted), "also where somebody scaled it down"
    assert box.breaches(now) == [], "what stands is inside, or the way back would begin with a breach"


@given(live)
def test_stop_lets_nothing_move(now: Mapping[Key, int]) -> None:
    box = frozen_box(now)
    assert box.breaches(now) == []
    for key, count in now.items():
        assert not may_go(box, key, count, count + 1)
        assert not count or not may_go(box, key, count, count - 1)


@given(live, live)
def test_the_parameter_says_what_the_box_says(floors: Mapping[Key, int], ceilings: Mapping[Key, int]) -> None:
    box = Box(floors, ceilings)
    data = {**box.as_data(), "operation": "U-1", "fence": "7", "namespace": "serving"}
    assert box_from_data(data) == box


def test_a_count_that_is_none_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError):
        box_from_data({f"ceil.0.{NEW}.prefill": "many"})
    assert box_from_data({"ceil.0": "1", "floor": "2", "note": "x"}) == Box()


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ({}, ["slice 0, decode of aaaa1111: 0 groups, allowed 1..2"]),
        ({("0", OLD, "decode"): 1}, []),
        ({("0", OLD, "decode"): 2}, []),
        ({("0", OLD, "decode"): 3}, ["slice 0, decode of aaaa1111: 3 groups, allowed 1..2"]),
        (
            {("0", OLD, "decode"): 1, ("0", NEW, "decode"): 1},
            ["slice 0, decode of bbbb2222: 1 groups, allowed 0..0"],
        ),
        (
            {("0", OLD, "decode"): 1, ("1", OLD, "decode"): 1},
            ["slice 1, decode of aaaa1111: 1 groups, allowed 0..0"],
        ),
    ],
)
def test_breaches(counts: Mapping[Key, int], found: list[str]) -> None:
    box = Box({("0", OLD, "decode"): 1}, {("0", OLD, "decode"): 2, ("0", NEW, "decode"): 0})
    assert box.breaches(counts) == found
