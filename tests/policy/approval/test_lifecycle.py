"""States of a request: only what people saw, in time, by people who may, lets exactly that step go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.approval.eligibility import Voter
from policy.approval.lifecycle import (
    Bounds,
    Choice,
    Content,
    Present,
    Request,
    StepKey,
    Vote,
    bounds_worse,
    passes,
    refuse_vote,
    request_expiry,
    request_state,
    step_expiry,
)
from policy.approval.quorum import Slot, slots_for

MADE = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = MADE + timedelta(hours=1)
BOUNDS = Bounds(24, {"prefill": 4, "decode": 2}, frozenset({"first-complete-row", "last-old-groups"}), "high")
CONTENT = Content("sha256:plan", {"roles": "sha256:a", "slices": "sha256:b"}, BOUNDS)
PEOPLE = {
    name: Voter(name, frozenset({"approver"}), signed_in_at=MADE)
    for name in ("ann", "bob", "cid", "req", "ed")
}
REQUEST = Request(
    content=CONTENT,
    slots=slots_for("high"),
    excluded={"req": "requester", "ed": "editor"},
    created_at=MADE,
    expires_at=request_expiry(MADE),
)
PRESENT = Present(content=CONTENT, slots=REQUEST.slots, voters=PEOPLE)


def vote(person: str, choice: Choice = "approve", minutes: int = 1) -> Vote:
    return Vote(person, choice, CONTENT.digest, MADE + timedelta(minutes=minutes))


def now_true(**change: object) -> Present:
    """The present, but for one part of the content."""
    return replace(PRESENT, content=replace(CONTENT, **change))  # type: ignore[arg-type]


CHOICES: tuple[Choice, ...] = ("approve", "withdraw")
BOTH = [vote("ann"), vote("bob")]


def test_two_people_approve() -> None:
    assert request_state(REQUEST, [], PRESENT, now=NOW).missing == REQUEST.slots
    one = request_state(REQUEST, [vote("ann")], PRESENT, now=NOW)
    assert (one.state, one.missing, one.counted) == ("open", (Slot("approver"),), ("ann",))
    both = request_state(REQUEST, BOTH, PRESENT, now=NOW)
    assert (both.state, both.missing, both.counted) == ("approved", (), ("ann", "bob"))


def test_low_risk_needs_nobody() -> None:
    low = replace(REQUEST, slots=slots_for("low"))
    assert request_state(low, [], replace(PRESENT, slots=()), now=NOW).state == "approved"


def test_one_rejection_ends_it() -> None:
    standing = request_state(REQUEST, [*BOTH, vote("cid", "reject")], PRESENT, now=NOW)
    assert standing.state == "rejected"
    assert "cid" in standing.reasons[0].sentence


def test_a_withdrawn_vote_does_not_count() -> None:
    votes = [*BOTH, vote("bob", "withdraw", 2)]
    assert request_state(REQUEST, votes, PRESENT, now=NOW).counted == ("ann",)


def test_withdrawn_and_executed_are_ends() -> None:
    withdrawn = replace(REQUEST, withdrawn_at=NOW)
    assert request_state(withdrawn, BOTH, PRESENT, now=NOW).state == "withdrawn"
    executed = replace(REQUEST, executed_at=NOW)
    later = now_true(digest="sha256:other")
    assert request_state(executed, BOTH, later, now=NOW + timedelta(days=30)).state == "approved"


def test_expiry_is_seven_days_and_a_late_vote_is_none() -> None:
    ends = MADE + timedelta(days=7)
    assert REQUEST.expires_at == ends
    assert request_state(REQUEST, BOTH, PRESENT, now=ends - timedelta(seconds=1)).state == "approved"
    assert request_state(REQUEST, BOTH, PRESENT, now=ends).state == "expired"
    late = [vote("ann"), replace(vote("bob"), at=ends)]
    assert request_state(REQUEST, late, PRESENT, now=ends - timedelta(seconds=1)).state == "open"


def test_step_approval_ends_with_its_hold_or_after_a_day() -> None:
    assert step_expiry(MADE, hold_ends_at=MADE + timedelta(hours=4)) == MADE + timedelta(hours=4)
    assert step_expiry(MADE, hold_ends_at=MADE + timedelta(days=3)) == MADE + timedelta(hours=24)


@pytest.mark.parametrize(
    ("present", "code"),
    [
        (now_true(digest="sha256:other"), "content-changed"),
        (now_true(base={"roles": "sha256:x", "slices": "sha256:b"}), "base-changed"),
        (now_true(base={"roles": "sha256:a"}), "base-changed"),
        (now_true(base={**CONTENT.base, "weights": "sha256:w"}), "base-changed"),
        (now_true(bounds=replace(BOUNDS, peak_devices=25)), "more-devices"),
        (replace(PRESENT, slots=(*REQUEST.slots, Slot("owner"))), "policy-tightened"),
        (replace(PRESENT, step=StepKey("op", "hold", 1)), "other-step"),
    ],
)
def test_what_people_saw_is_no_longer_true(present: Present, code: str) -> None:
    standing = request_state(REQUEST, BOTH, present, now=NOW)
    assert standing.state == "stale"
    assert [reason.code for reason in standing.reasons] == [code]
    assert standing.counted == ()


def test_loosening_never_helps_an_open_request() -> None:
    looser = replace(PRESENT, slots=slots_for("medium"))
    assert request_state(REQUEST, [vote("ann")], looser, now=NOW).state == "open"
    assert request_state(REQUEST, [], replace(PRESENT, slots=()), now=NOW).state == "open"


def test_better_bounds_keep_the_votes() -> None:
    better = Bounds(20, {"prefill": 5, "decode": 2, "encode": 1}, frozenset({"every-row"}), "medium", 3600)
    present = now_true(bounds=better)
    assert request_state(REQUEST, BOTH, present, now=NOW).state == "approved"


def test_every_way_in_which_bounds_get_worse_is_named() -> None:
    worse = Bounds(25, {"decode": 1}, frozenset({"first-complete-row"}), "high", 5 * 3600)
    reasons = bounds_worse(replace(BOUNDS, risk="medium"), worse)
    assert [reason.code for reason in reasons] == [
        "more-devices", "less-ready", "less-ready", "hold-gone", "longer-hold", "higher-risk",
    ]  # fmt: skip
    assert "last-old-groups" in reasons[3].sentence


bounds = st.builds(
    Bounds,
    peak_devices=st.integers(0, 5),
    minimum_ready=st.dictionaries(st.sampled_from(["prefill", "decode"]), st.integers(0, 3)),
    holds=st.frozensets(st.sampled_from(["first-complete-row", "half", "every-row"])),
    risk=st.sampled_from(["low", "medium", "high"]),
    hold_seconds=st.integers(0, 3),
)


@given(bounds, bounds, bounds)
def test_not_worse_is_an_order(a: Bounds, b: Bounds, c: Bounds) -> None:
    assert bounds_worse(a, a) == ()
    if not bounds_worse(a, b) and not bounds_worse(b, c):
        assert bounds_worse(a, c) == ()


def test_an_account_that_lost_its_role_no_longer_carries_the_quorum() -> None:
    for gone in (replace(PEOPLE["bob"], roles=frozenset()), replace(PEOPLE["bob"], active=False)):
        present = replace(PRESENT, voters={**PEOPLE, "bob": gone})
        assert request_state(REQUEST, BOTH, present, now=NOW).counted == ("ann",)
    deleted = {name: voter for name, voter in PEOPLE.items() if name != "bob"}
    assert request_state(REQUEST, BOTH, replace(PRESENT, voters=deleted), now=NOW).state == "open"


@given(st.lists(st.tuples(st.sampled_from(sorted(PEOPLE)), st.sampled_from(CHOICES)), max_size=8))
def test_no_vote_by_requester_or_editor_ever_counts(cast: list[tuple[str, Choice]]) -> None:
    votes = [vote(person, choice, minute) for minute, (person, choice) in enumerate(cast)]
    standing = request_state(REQUEST, votes, PRESENT, now=NOW)
    assert not {"req", "ed"} & set(standing.counted)
    last = dict(cast)
    others = {person for person, choice in last.items() if choice == "approve"} - {"req", "ed"}
    assert set(standing.counted) == others
    assert (standing.state == "approved") == (len(others) >= 2)


def test_a_vote_on_another_digest_does_not_count() -> None:
    votes = [
        vote("ann"),
        replace(vote("bob"), digest="sha256:older"),
        replace(vote("cid", "reject"), digest="x"),
    ]
    standing = request_state(REQUEST, votes, PRESENT, now=NOW)
    assert (standing.state, standing.counted) == ("open", ("ann",))


def test_a_rejection_by_the_requester_or_editor_is_none() -> None:
    votes = [*BOTH, vote("req", "reject"), vote("ed", "reject")]
    assert request_state(REQUEST, votes, PRESENT, now=NOW).state == "approved"


keys = st.builds(
    StepKey, st.sampled_from(["op-1", "op-2"]), st.sampled_from(["hold-2", "hold-3"]), st.integers(1, 2)
)


@given(keys, keys, keys)
def test_an_approval_passes_exactly_its_own_step(made: StepKey, voted: StepKey, asked: StepKey) -> None:
    request = replace(REQUEST, step=made)
    votes = [replace(cast, step=voted) for cast in BOTH]
    standing = request_state(request, votes, replace(PRESENT, step=asked), now=NOW)
    assert passes(request, standing, step=asked) == (made == voted == asked)


def test_a_step_approval_does_not_pass_the_change_itself_nor_the_other_way_round() -> None:
    key = StepKey("op", "hold-2", 1)
    approved = request_state(REQUEST, BOTH, PRESENT, now=NOW)
    assert passes(REQUEST, approved, step=None)
    assert not passes(REQUEST, approved, step=key)
    step = replace(REQUEST, step=key)
    assert request_state(step, BOTH, replace(PRESENT, step=key), now=NOW).state == "open"


def refusals(cast: Vote, **more: object) -> list[str]:
    standing = request_state(REQUEST, [], PRESENT, now=NOW)
    at = MADE + timedelta(minutes=2)
    found = refuse_vote(cast, PEOPLE[cast.person], REQUEST, standing, now=at, **more)  # type: ignore[arg-type]
    return [refusal.code for refusal in found]


def test_votes_that_are_not_taken() -> None:
    assert refusals(vote("ann")) == []
    assert refusals(vote("req")) == ["requester"]
    assert refusals(vote("ed")) == ["editor"]
    assert refusals(replace(vote("ann"), digest="sha256:older")) == ["other-content"]
    assert refusals(replace(vote("ann"), step=StepKey("op", "hold-2", 1))) == ["other-content"]
    assert refusals(vote("ann", "reject")) == ["comment-missing"]
    assert refusals(vote("ann", "reject"), comment="  ") == ["comment-missing"]
    assert refusals(vote("ann", "reject"), comment="too many devices") == []
    assert refusals(vote("ann"), blocked_by="Gate ttft is red.") == ["evidence-not-green"]
    assert refusals(vote("ann", "reject"), comment="no", blocked_by="Gate ttft is red.") == []
    assert refusals(vote("ann", "withdraw"), blocked_by="Gate ttft is red.") == []


def test_a_closed_request_takes_no_votes() -> None:
    standing = request_state(REQUEST, BOTH, PRESENT, now=NOW)
    (refusal,) = refuse_vote(vote("cid"), PEOPLE["cid"], REQUEST, standing, now=MADE)
    assert (refusal.code, "approved" in refusal.sentence) == ("request-not-open", True)
