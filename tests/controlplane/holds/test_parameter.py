from __future__ import annotations

import json

import pytest

from controlplane.fleet.parameter import HOLD_LABEL
from controlplane.holds.parameter import (
    belongs_to,
    box_as_json,
    box_from_json,
    fence_of,
    holding_parameter,
    is_holding,
    released,
    released_parameter,
    same_box,
    standing_box,
    with_fence,
)
from policy.rollout.box import Box
from tests.controlplane.upgrades.given import OLD, pair

KEY = ("0", OLD, "prefill")


def test_a_set_that_is_fenced_for_the_first_time_is_not_held() -> None:
    made = released_parameter(namespace="llm", name="chat", uid="u", fence=7)
    assert made["metadata"]["name"] == "hold-llm.chat" and made["metadata"]["namespace"] == "lockstep"
    assert not is_holding(made) and fence_of(made) == 7
    assert not is_holding(None) and fence_of(None) == 0


def test_hold_and_release_keep_who_and_what_and_raise_the_number() -> None:
    first = released_parameter(namespace="llm", name="chat", uid="u", fence=7)
    box = Box({KEY: 4}, {KEY: 4})
    held = holding_parameter(first, operation="U-3", installation="here", fence=9, box=box, old_roles=pair())
    assert is_holding(held) and fence_of(held) == 9 and standing_box(held) == box
    assert json.loads(held["data"]["old-roles"]) == {"spec": {"roles": pair()}}
    assert "patch disaggregatedset chat" in held["data"]["to-abort"]
    assert HOLD_LABEL in held["data"]["to-release"]
    assert belongs_to(held, operation="U-3", installation="here")
    assert not belongs_to(held, operation="U-3", installation="another"), (
        "numbers repeat, installations do not"
    )
    assert not is_holding(first), "the object that was read is not changed"

    let_go = released(held, fence=11)
    assert not is_holding(let_go) and fence_of(let_go) == 11 and standing_box(let_go) == Box()
    assert belongs_to(let_go, operation="U-3", installation="here") and "old-roles" not in let_go["data"]
    assert fence_of(with_fence(held, 12)) == 12 and standing_box(with_fence(held, 12)) == box


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Box(), Box({KEY: 0}, {KEY: 0}), True),
        (Box({KEY: 1}), Box({KEY: 1}, {KEY: 0}), True),
        (Box({KEY: 1}), Box({KEY: 2}), False),
        (Box({}, {KEY: 1}), Box({}, {KEY: 2}), False),
        (Box({KEY: 1}, {}), Box({}, {KEY: 1}), False),
    ],
)
def test_no_entry_and_0_are_the_same(one: Box, other: Box, same: bool) -> None:
    assert same_box(one, other) is same_box(other, one) is same


def test_a_remembered_box_is_the_one_that_was_written_and_an_empty_one_is_not_none() -> None:
    box = Box({KEY: 1, ("1", OLD, "decode"): 0}, {KEY: 4})
    assert box_from_json(json.loads(json.dumps(box_as_json(box)))) == box
    assert box_from_json(box_as_json(Box())) == Box()
    assert box_from_json(None) is None
