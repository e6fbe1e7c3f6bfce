"""No value of a variable leaves the plan: not in what is shown, voted on, refused or digested."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.errors import BadInput
from controlplane.upgrades import services
from controlplane.upgrades.diff import roles_diff
from controlplane.upgrades.models import Plan
from controlplane.upgrades.secrecy import redacted
from controlplane.upgrades.serializers import PlanDetail
from policy.rollout.draft import DraftRefused, apply_draft, parse_draft
from tests.controlplane.upgrades.given import checked, live_set, pair, with_image

SECRET = "hunter2-is-the-password"


@pytest.mark.parametrize(
    "draft",
    [
        {"roles": {"prefill": {"env": {"TOKEN": SECRET}}}},
        {"roles": {"prefill": {"leader": {"env": {"TOKEN": SECRET}}, "worker": {"env": {"TOKEN": SECRET}}}}},
        {"roles": {"prefill": {"env": [{"name": "TOKEN", "value": SECRET}]}}},
        {"roles": {"prefill": {"ENV": {"TOKEN": SECRET}}}},
        {"roles": {"prefill": {"env": {"TOKEN": {"value": SECRET}}}}},
        {"spec_roles": pair(env={"TOKEN": SECRET})},
    ],
)
def test_a_draft_is_shown_without_values(draft: dict[str, Any]) -> None:
    live = live_set(pair())
    plan = checked(live, with_image(live.roles))
    plan.draft, plan.problem, plan.acknowledged, plan.title = draft, {}, {}, "t"
    shown = PlanDetail().get_draft(plan)
    assert SECRET not in str(shown)
    assert "TOKEN" in str(shown)
    assert str(draft).count(SECRET) >= 1, "the plan itself keeps it, or it could not be written"


@pytest.mark.parametrize(
    "draft",
    [
        {"env": {"TOKEN": {"value": SECRET}}},
        {"env": SECRET},
        {"env": [SECRET]},
        {"ENV": {"TOKEN": SECRET}},
        {"env": {"BAD NAME=": SECRET}},
        {"env": {"TOKEN": [SECRET]}},
    ],
)
def test_a_refusal_does_not_repeat_the_value(draft: dict[str, Any]) -> None:
    try:
        apply_draft(pair(), parse_draft({"roles": {"prefill": draft}}))
    except DraftRefused as refused:
        assert SECRET not in str(refused)
        assert all(SECRET not in str(refusal) for refusal in refused.refusals)


def test_a_change_of_a_value_is_seen_and_the_value_is_not() -> None:
    before, after = pair(env={"TOKEN": "first-" + SECRET}), pair(env={"TOKEN": "second-" + SECRET})
    diff = roles_diff(redacted(before, plan_id=1), redacted(after, plan_id=1))
    assert len(diff["changes"]) == 2 and SECRET not in str(diff)
    assert all(change["before"] != change["after"] for change in diff["changes"])
    same = roles_diff(redacted(before, plan_id=1), redacted(before, plan_id=1))
    assert same["changes"] == []


@pytest.mark.parametrize(
    "draft",
    [
        {"roles": {"prefill": {"env": redacted({"env": {"TOKEN": SECRET}}, plan_id=1)["env"]}}},
        {"spec_roles": redacted(pair(env={"TOKEN": SECRET}), plan_id=1)},
    ],
)
def test_what_was_shown_is_not_taken_for_the_value(draft: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refused:
        services.read_draft(draft)
    assert (refused.value.code, refused.value.field) == ("redacted-value", "draft")


def test_values_of_two_plans_cannot_be_compared() -> None:
    one, other = (redacted(pair(env={"TOKEN": SECRET}), plan_id=number) for number in (1, 2))
    assert one != other
    assert one == redacted(pair(env={"TOKEN": SECRET}), plan_id=1)


def test_nothing_that_a_check_derives_holds_a_value() -> None:
    live = live_set(pair(env={"TOKEN": SECRET}))
    plan: Plan = checked(live, with_image(pair(env={"TOKEN": "new-" + SECRET})))
    assert plan.content and SECRET in str(plan.content["roles_after"])
    for part in (
        plan.content["diff"],
        plan.content["templates_digest"],
        plan.base,
        plan.bounds,
        plan.rows,
        plan.hazards,
    ):
        assert SECRET not in str(part)
