"""The planner against published rollouts, and what must hold for every rollout."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.rollout.budget import OldRevision, split_drain
from policy.rollout.planner import Row, executor_rows, is_complete, next_row, plan
from tests.policy.rollout.tables import PLANNED, Table, parse


def rows_of(table: Table) -> tuple[Row, ...]:
    return plan(initial=table.initial, target=table.target, surge=table.surge, unavailable=table.unavailable)


@pytest.mark.parametrize("table", PLANNED, ids=lambda t: t.name)
def test_published_table(table: Table) -> None:
    got = list(rows_of(table))
    expected = table.rows()
    if table.name == "kep_766_example":  # published without the start of the rollout
        assert [(r.old, r.new) for r in got[-5:]] == [(r.old, r.new) for r in expected[-5:]]
    assert got == expected


@pytest.mark.parametrize("table", PLANNED, ids=lambda t: t.name)
def test_each_row_follows_from_the_row_before(table: Table) -> None:
    rows = rows_of(table)
    for before, after in zip(rows, [*rows[1:], None], strict=True):
        assert after == next_row(
            initial=table.initial,
            old=before.old,
            new=before.new,
            target=table.target,
            surge=table.surge,
            unavailable=table.unavailable,
        )


def test_third_revision_in_the_middle_of_a_rollout() -> None:
    """6,6 with surge 1: A=4, B=3 when C is written. B goes first, then A alone is left."""
    seen = []
    a, b, c = 4, 3, 0
    initial_a, initial_b = 4, 3
    while True:
        both = (a + b,) * 2
        row = next_row(
            initial=(initial_a + initial_b,) * 2,
            old=both,
            new=(c, c),
            target=(6, 6),
            surge=(1, 1),
            unavailable=(0, 0),
        )
        if row is None:
            break
        budget = a + b - row.old[0]
        drains = split_drain(
            budgets={"prefill": budget, "decode": budget},
            revisions=[
                OldRevision("a", "2026-01-01T00:00:00Z", {"prefill": a, "decode": a}),
                OldRevision("b", "2026-01-02T00:00:00Z", {"prefill": b, "decode": b}),
            ][: 2 if initial_b else 1],
        )
        left = {drain.revision: drain.after["prefill"] for drain in drains}
        a, b, c = left["a"], left.get("b", 0), row.new[0]
        seen.append(f"{a}/{b if initial_b else '-'}/{c} {row.kind}")
        if b == 0:
            initial_b = 0  # drained revisions are deleted before the next step
    assert seen == [
        "4/2/0 drain",
        "4/2/1 up",
        "4/1/1 drain",
        "4/1/2 up",
        "4/0/2 drain",
        "4/-/3 up",
        "3/-/4 force",
        "2/-/5 force",
        "1/-/6 force",
        "0/-/6 final",
    ]


def test_surge_raised_in_the_middle_of_a_rollout() -> None:
    old: tuple[int, ...] = (5, 5)
    new: tuple[int, ...] = (1, 1)
    seen = []
    while row := next_row(initial=(6, 6), old=old, new=new, target=(6, 6), surge=(3, 3), unavailable=(0, 0)):
        old, new = row.old, row.new
        seen.append(f"{old[0]}|{new[0]} {row.kind}")
    assert seen == ["5|3 up", "3|3 drain", "3|6 up", "0|6 final"]


def test_revert_has_no_annotation_so_the_initial_counts_shrink_along() -> None:
    """4,4 with surge 1, turned back at A=2, B=3: I is what is left of B at every step."""
    a, b = 2, 3
    seen = []
    while row := next_row(
        initial=(b, b), old=(b, b), new=(a, a), target=(4, 4), surge=(1, 1), unavailable=(0, 0)
    ):
        a, b = row.new[0], row.old[0]
        seen.append((a, b))
    assert seen == [(3, 2), (4, 1), (4, 0)]


def test_counts_above_the_initial_ones_are_cut_back_first() -> None:
    row = next_row(initial=(4, 2), old=(6, 2), new=(1, 1), target=(4, 2), surge=(1, 1), unavailable=(0, 0))
    assert row == Row((4, 2), (1, 1), "clamp")


def test_target_under_what_is_there_ends_at_once() -> None:
    row = next_row(initial=(4, 4), old=(2, 2), new=(3, 3), target=(2, 2), surge=(1, 1), unavailable=(0, 0))
    assert row == Row((0, 0), (3, 3), "final")


def test_removed_role_is_drained_along_and_kept_whole() -> None:
    rows = plan(initial=(4, 4, 2), target=(4, 4, 0), surge=(1, 1, 1), unavailable=(0, 0, 0))
    assert all((row.old[2] > 0) == (row.old[0] > 0) for row in rows)
    assert all(row.new[2] == 0 for row in rows)
    assert rows[-1].old == (0, 0, 0)


def test_nothing_to_do() -> None:
    assert plan(initial=(0, 0), target=(0, 0), surge=(1, 1), unavailable=(0, 0)) == (
        Row((0, 0), (0, 0), "start"),
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"target": (1,)}, "target has 1 entries"), ({"surge": (1, -1)}, "surge has a negative count")],
)
def test_bad_input_is_named(changed: dict[str, tuple[int, ...]], message: str) -> None:
    arguments = {"initial": (1, 1), "target": (1, 1), "surge": (1, 1), "unavailable": (0, 0)} | changed
    with pytest.raises(ValueError, match=message):
        plan(**arguments)


# What the controller makes of a plan


def test_controller_jumps_to_full_size_once_nothing_old_is_left() -> None:
    rows = plan(initial=(4, 4), target=(4, 4), surge=(0, 0), unavailable=(2, 2))
    assert list(executor_rows(rows, target=(4, 4))) == parse(
        "4,4|0,0:start 2,2|0,0:drain 2,2|2,2:up 0,0|2,2:drain 0,0|4,4:steady"
    )


def test_several_last_up_rows_become_one_jump() -> None:
    rows = plan(initial=(2, 2), target=(6, 6), surge=(0, 0), unavailable=(2, 2))
    done = executor_rows(rows, target=(6, 6))
    assert [row.kind for row in done].count("steady") <= 1
    assert done[-1].new == (6, 6)
    assert all(any(row.old) for row in done[:-2])


def test_fresh_set_starts_at_full_size() -> None:
    rows = plan(initial=(0, 0), target=(3, 3), surge=(1, 1), unavailable=(0, 0))
    assert len(rows) == 4
    assert list(executor_rows(rows, target=(3, 3))) == parse("0,0|0,0:start 0,0|3,3:steady")


def test_a_plan_that_ends_with_its_last_drain_is_unchanged() -> None:
    rows = plan(initial=(6, 2), target=(6, 2), surge=(1, 1), unavailable=(0, 0))
    assert executor_rows(rows, target=(6, 2)) == rows


def test_with_every_role_renamed_the_old_groups_leak() -> None:
    rows = plan(initial=(0, 0, 4, 2), target=(4, 2, 0, 0), surge=(1,) * 4, unavailable=(0,) * 4)
    assert list(executor_rows(rows, target=(4, 2, 0, 0), spec_roles=2)) == parse(
        "0,0,4,2|0,0,0,0:start 0,0,4,2|4,2,0,0:steady"
    )


# What holds for every rollout

counts = st.integers(1, 14)


@st.composite
def rollouts(draw: st.DrawFn, *, least_surge: int = 0, grow: bool = True) -> dict[str, tuple[int, ...]]:
    roles = draw(st.integers(2, 5))
    initial = draw(st.tuples(*[counts] * roles))
    target = draw(st.one_of(st.just(initial), st.tuples(*[counts] * roles))) if grow else initial
    surge, unavailable = [], []
    for t in target:
        s = draw(st.integers(least_surge, t + 2))
        u = draw(st.integers(0 if s else 1, t + 1))
        surge.append(s)
        unavailable.append(u)
    return {"initial": initial, "target": target, "surge": tuple(surge), "unavailable": tuple(unavailable)}


@given(rollouts())
@settings(max_examples=400)
def test_every_plan_completes(case: dict[str, tuple[int, ...]]) -> None:
    rows = plan(**case)
    assert is_complete(old=rows[-1].old, new=rows[-1].new, target=case["target"])
    assert not any(is_complete(old=r.old, new=r.new, target=case["target"]) for r in rows[:-1])


@given(rollouts())
@settings(max_examples=400)
def test_the_last_old_groups_go_together(case: dict[str, tuple[int, ...]]) -> None:
    for row in plan(**case):
        assert all(row.old) or not any(row.old)


@given(rollouts())
@settings(max_examples=200)
def test_old_only_shrinks_and_new_only_grows(case: dict[str, tuple[int, ...]]) -> None:
    rows = plan(**case)
    for before, after in zip(rows, rows[1:], strict=False):
        assert all(a <= b for a, b in zip(after.old, before.old, strict=True))
        assert all(a >= b for a, b in zip(after.new, before.new, strict=True))
        assert (after.old, after.new) != (before.old, before.new)
        assert all(n <= t for n, t in zip(after.new, case["target"], strict=True))


@given(rollouts(least_surge=1))
@settings(max_examples=600)
def test_with_surge_the_counts_stay_in_their_bounds(case: dict[str, tuple[int, ...]]) -> None:
    rows = plan(**case)
    per_role = zip(case["initial"], case["target"], case["surge"], case["unavailable"], strict=True)
    for role, (initial, target, surge, unavailable) in enumerate(per_role):
        for before, after in zip(rows, rows[1:], strict=False):
            if after.new[role]:
                assert after.old[role] + after.new[role] <= target + surge
            if initial >= target:
                assert after.old[role] + before.new[role] >= target - unavailable


@given(st.integers(1, 12), st.integers(2, 5))
@settings(max_examples=100)
def test_equal_counts_with_surge_one_move_one_side_at_a_time(count: int, roles: int) -> None:
    rows = plan(
        initial=(count,) * roles, target=(count,) * roles, surge=(1,) * roles, unavailable=(0,) * roles
    )
    for before, after in zip(rows, rows[1:], strict=False):
        assert (before.old == after.old) != (before.new == after.new)


@given(rollouts(), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_the_order_of_roles_does_not_matter(case: dict[str, tuple[int, ...]], random: object) -> None:
    order = list(range(len(case["initial"])))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = plan(**{name: tuple(values[i] for i in order) for name, values in case.items()})
    for row, other in zip(plan(**case), shuffled, strict=True):
        assert tuple(row.old[i] for i in order) == other.old
        assert tuple(row.new[i] for i in order) == other.new
        assert row.kind == other.kind


@given(rollouts())
@settings(max_examples=200)
def test_controller_rows_end_at_the_target(case: dict[str, tuple[int, ...]]) -> None:
    rows = plan(**case)
    done = executor_rows(rows, target=case["target"])
    assert done[-1].new == case["target"]
    assert not any(done[-1].old)
    shared = len(done) - (done[-1].kind == "steady")
    assert done[:shared] == rows[:shared]
    assert sum(not any(row.old) for row in done) <= 2
