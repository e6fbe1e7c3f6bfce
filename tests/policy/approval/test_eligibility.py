"""Who may vote: each rule refuses on its own, with a code, a sentence and a way on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.approval.eligibility import (
    RECENT_MINTING,
    RECENT_SIGN_IN,
    TokenOrigin,
    Voter,
    exclusions,
    refuse_counting,
    refuse_voter,
)
from policy.approval.quorum import slots_for

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Voter("ann", frozenset({"approver"}), signed_in_at=NOW - timedelta(minutes=1))


def codes(voter: Voter, *, level: str = "high", **excluded: str) -> list[str]:
    found = refuse_voter(voter, slots=slots_for("high"), excluded=excluded, level=level, now=NOW)  # type: ignore[arg-type]
    assert all(refusal.sentence and refusal.next_action for refusal in found)
    return [refusal.code for refusal in found]


def test_an_approver_who_took_no_part_may_vote() -> None:
    assert codes(ANN) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"roles": frozenset({"operator"})}, "role-missing"),
        ({"roles": frozenset(), "superuser": True}, "role-missing"),
        ({"active": False}, "account-inactive"),
        ({"is_person": False}, "service-account"),
        ({"by_token": True}, "token-vote"),
        ({"is_person": False, "by_token": True}, "service-account"),
        ({"signed_in_at": None}, "sign-in-too-old"),
        ({"signed_in_at": NOW - RECENT_SIGN_IN - timedelta(seconds=1)}, "sign-in-too-old"),
        ({"signed_in_at": NOW + timedelta(hours=1)}, "sign-in-too-old"),
    ],
)
def test_each_rule_alone_refuses(change: dict[str, object], code: str) -> None:
    assert codes(replace(ANN, **change)) == [code]  # type: ignore[arg-type]


def test_an_old_sign_in_is_enough_below_high_risk() -> None:
    assert codes(replace(ANN, signed_in_at=None), level="medium") == []


def test_a_superuser_reads_that_the_role_is_still_needed() -> None:
    root = replace(ANN, roles=frozenset(), superuser=True)
    (refusal,) = refuse_voter(root, slots=slots_for("high"), excluded={}, level="high", now=NOW)
    assert "Superuser" in refusal.sentence


def test_everybody_behind_a_token_request_is_excluded() -> None:
    token = TokenOrigin(
        owner="robot",
        responsible="rita",
        minted=(("mia", NOW - timedelta(days=1)), ("max", NOW - RECENT_MINTING - timedelta(seconds=1))),
    )
    excluded = exclusions(requester="robot", editors=["ed"], token=token, now=NOW)
    assert excluded == {
        "robot": "requester",
        "rita": "responsible-person",
        "mia": "token-minter",
        "ed": "editor",
    }
    assert codes(replace(ANN, person="mia"), **excluded) == ["token-minter"]
    assert codes(replace(ANN, person="max"), **excluded) == []


people = st.sampled_from("abcdef")


@given(
    requester=people,
    editors=st.lists(people, max_size=3),
    owner=people,
    responsible=people,
    minter=people,
    superuser=st.booleans(),
)
def test_nobody_who_took_part_ever_counts(
    requester: str, editors: list[str], owner: str, responsible: str, minter: str, superuser: bool
) -> None:
    token = TokenOrigin(owner, responsible, ((minter, NOW),))
    excluded = exclusions(requester=requester, editors=editors, token=token, now=NOW)
    part = {requester, *editors, owner, responsible, minter}
    for person in "abcdef":
        voter = replace(ANN, person=person, superuser=superuser)
        refused = refuse_counting(voter, slots=slots_for("medium"), excluded=excluded)
        assert bool(refused) == (person in part)
