"""Quorum: as many slots filled as any assignment of people could fill, whatever order they voted in."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.approval.quorum import APPROVER, Approver, Slot, match_slots, slots_for, tightened

ROLES = ("approver", "owner")
GROUPS = ("red", "blue")
slots = st.lists(st.builds(Slot, st.sampled_from(ROLES), st.none() | st.sampled_from(GROUPS)), max_size=4)
people = st.lists(
    st.builds(
        Approver,
        st.sampled_from("abcd"),
        st.frozensets(st.sampled_from(ROLES)),
        st.frozensets(st.sampled_from(GROUPS)),
    ),
    max_size=4,
    unique_by=lambda approver: approver.person,
)


def most_filled(wanted: list[Slot], approvers: list[Approver]) -> int:
    """By trying every order of people over the slots, with nobody as a possible choice."""
    padded: list[Approver | None] = [*approvers, *([None] * len(wanted))]
    return max(
        (
            sum(1 for slot, who in zip(wanted, order, strict=False) if who is not None and who.fills(slot))
            for order in permutations(padded, len(wanted))
        ),
        default=0,
    )


@given(slots, people)
def test_fills_as_many_slots_as_brute_force(wanted: list[Slot], approvers: list[Approver]) -> None:
    match = match_slots(wanted, approvers)
    assert len(match.filled) == most_filled(wanted, approvers)
    assert len(match.missing) == len(wanted) - len(match.filled)
    by_name = {approver.person: approver for approver in approvers}
    assert len(set(match.filled.values())) == len(match.filled)
    assert all(by_name[person].fills(wanted[index]) for index, person in match.filled.items())


@given(slots, people, st.randoms(use_true_random=False))
def test_order_of_votes_does_not_matter(wanted: list[Slot], approvers: list[Approver], rng: object) -> None:
    shuffled = list(approvers)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert len(match_slots(wanted, shuffled).missing) == len(match_slots(wanted, approvers).missing)


def test_a_person_in_both_groups_does_not_block_the_other_slot() -> None:
    both = Approver("ann", frozenset({"approver"}), frozenset({"red", "blue"}))
    red = Approver("bob", frozenset({"approver"}), frozenset({"red"}))
    match = match_slots([Slot("approver", "red"), Slot("approver", "blue")], [both, red])
    assert match.complete
    assert match.filled == {0: "bob", 1: "ann"}


def test_one_person_twice_is_one_vote() -> None:
    ann = Approver("ann", frozenset({APPROVER}))
    assert match_slots(slots_for("high"), [ann, ann]).missing == (Slot(APPROVER),)


@pytest.mark.parametrize(("level", "votes"), [("low", 0), ("medium", 1), ("high", 2)])
def test_votes_per_risk_class(level: str, votes: int) -> None:
    wanted = slots_for(level, owners="serving-owners")  # type: ignore[arg-type]
    assert len(wanted) == votes
    assert [slot.group for slot in wanted] == (["serving-owners", None] if votes == 2 else [None] * votes)


def test_two_approvers_without_an_owner_do_not_pass_high_risk() -> None:
    pair = [Approver("ann", frozenset({APPROVER})), Approver("bob", frozenset({APPROVER}))]
    assert match_slots(slots_for("high", owners="owners"), pair).missing == (Slot(APPROVER, "owners"),)
    assert match_slots(slots_for("high"), pair).complete


@given(slots, slots, people)
def test_votes_for_the_old_policy_satisfy_a_policy_that_is_not_tighter(
    before: list[Slot], after: list[Slot], approvers: list[Approver]
) -> None:
    if not tightened(before, after) and match_slots(before, approvers).complete:
        assert match_slots(after, approvers).complete


def test_tightened_names_what_is_new() -> None:
    assert tightened(slots_for("medium"), slots_for("high")) == (Slot(APPROVER),)
    assert tightened(slots_for("high"), slots_for("high", owners="o")) == (Slot(APPROVER, "o"),)
    assert tightened(slots_for("high", owners="o"), slots_for("high")) == ()
