"""Cases of the controller's executor, and what holds for every split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.rollout.budget import OldRevision, split_drain

PREFILL_DECODE = ("prefill", "decode")


def split(
    budget: tuple[int, ...], *oldest_first: tuple[int, ...], roles: tuple[str, ...] = PREFILL_DECODE
) -> list[tuple[int, ...]]:
    """What is left of each revision, oldest first. A revision may lack the last roles."""
    revisions = [
        OldRevision(f"r{age}", f"2026-01-{age + 1:02}T00:00:00Z", dict(zip(roles, counts, strict=False)))
        for age, counts in enumerate(oldest_first)
    ]
    drains = split_drain(budgets=dict(zip(roles, budget, strict=True)), revisions=revisions)
    return [tuple(drain.after.values()) for drain in reversed(drains)]


@pytest.mark.parametrize(
    ("budget", "revisions", "expected"),
    [
        ((2, 2), [(4, 4)], [(2, 2)]),
        ((2, 2), [(2, 2), (2, 2)], [(2, 2), (0, 0)]),
        ((1, 2), [(3, 2)], [(0, 0)]),
        ((2, 2), [(6, 6)], [(4, 4)]),
        ((4, 4), [(2, 2), (2, 2), (2, 2)], [(2, 2), (0, 0), (0, 0)]),
        ((1, 1), [(1, 2), (3, 3)], [(1, 2), (2, 2)]),
        ((2, 2), [(1, 1), (3, 3)], [(1, 1), (1, 1)]),
    ],
)
def test_executor_cases(
    budget: tuple[int, int], revisions: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert split(budget, *revisions) == expected


@pytest.mark.parametrize(
    ("budget", "expected"), [((0, 1, 0), (4, 3)), ((1, 1, 0), (3, 3)), ((4, 0, 0), (0, 0))]
)
def test_a_role_that_the_old_revision_lacks_causes_nothing(
    budget: tuple[int, int, int], expected: tuple[int, int]
) -> None:
    assert split(budget, (4, 4), roles=("prefill", "decode", "encode")) == [expected]


def test_a_role_at_zero_takes_the_whole_revision_with_it() -> None:
    assert split((0, 1), (0, 4)) == [(0, 0)]


def test_nothing_is_taken_without_a_budget() -> None:
    assert split((0, 0), (0, 4)) == [(0, 4)]


def test_only_the_roles_that_caused_it_are_charged() -> None:
    """Newest 1,5 goes to 0 for its prefill; its decode is free, so the older one still gives its two."""
    assert split((1, 2), (4, 4), (1, 5)) == [(4, 2), (0, 0)]


def test_a_negative_budget_takes_nothing_and_keeps_a_role_at_zero_from_counting() -> None:
    """The planner may ask for one group where the old side has none; the controller never raises it."""
    assert split((-1, 1), (0, 4)) == [(0, 3)]


def test_it_says_which_revisions_went_as_a_whole() -> None:
    drains = split_drain(
        budgets={"prefill": 1, "decode": 1},
        revisions=[
            OldRevision("a", "2026-01-01T00:00:00Z", {"prefill": 3, "decode": 3}),
            OldRevision("b", "2026-01-02T00:00:00Z", {"prefill": 1, "decode": 1}),
        ],
    )
    assert [(drain.revision, drain.together) for drain in drains] == [("b", True), ("a", False)]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
@settings(max_examples=300)
def test_a_split_takes_at_least_the_budget_and_never_adds(
    revisions: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    totals = [sum(counts) for counts in zip(*revisions, strict=True)]
    budget = tuple(min(w, t) for w, t in zip(wanted, totals, strict=True))
    left = split(budget, *revisions)
    for before, after in zip(revisions, left, strict=True):
        assert all(0 <= a <= b for a, b in zip(after, before, strict=True))
    for role in range(2):
        assert totals[role] - sum(counts[role] for counts in left) >= budget[role]
