"""What votes are about: content, base and bounds, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from controlplane.upgrades.bounds import Bounds, bounds_worse, plan_digest
from controlplane.upgrades.models import Plan
from tests.controlplane.upgrades.given import checked, live_set, pair, role, with_image

Json = dict[str, Any]


def plan(before: list[Json] | None = None, after: list[Json] | None = None, **options: Any) -> Plan:
    stands = before or pair()
    return checked(live_set(stands), after or with_image(stands), **options)


def digest_on(found: Plan, *, approved: Plan) -> str:
    """The digest of what a re-check finds, under the bounds that were approved."""
    assert found.content and found.base and approved.bounds
    return plan_digest(found.content, found.base, approved.bounds)


def test_the_same_is_the_same() -> None:
    assert plan().digest == plan().digest


@pytest.mark.parametrize("replicas", [(5, 2), (3, 2), (4, 3), (2, 1)])
def test_replicas_on_both_sides_are_not_what_was_approved(replicas: tuple[int, int]) -> None:
    approved, scaled = plan(), plan(pair(*replicas))
    assert digest_on(scaled, approved=approved) == approved.digest
    assert scaled.rows and scaled.rows["initial"] == list(replicas)


def test_image_ids_seen_are_evidence() -> None:
    one, other = plan(), plan()
    assert other.base
    other.base["images"] = {"prefill": {"engine": {"image": "x", "image_ids": ["y"]}}}
    assert digest_on(other, approved=one) == one.digest


def test_content_changes_it() -> None:
    approved = plan()
    assert digest_on(plan(after=with_image(pair(), "other@sha256:3")), approved=approved) != approved.digest
    more = with_image(pair())
    more[0]["spec"]["replicas"] = 5
    assert digest_on(plan(after=more), approved=approved) != approved.digest, "a replica change is content"


def test_a_secret_changes_it_though_it_shows_nowhere() -> None:
    first, second = (plan(after=with_image(pair(env={"TOKEN": value}))) for value in ("hunter2", "hunter3"))
    assert first.digest != second.digest
    assert first.content
    assert "hunter" not in str(first.content["diff"]) and "TOKEN" in str(first.content["diff"])


@pytest.mark.parametrize("part", ["uid", "templates", "pace", "slices", "placement", "revision"])
def test_every_part_of_the_base_changes_it(part: str) -> None:
    approved, moved = plan(), plan()
    assert moved.base
    moved.base[part] = "something else"
    assert digest_on(moved, approved=approved) != approved.digest


def test_order_is_part_of_the_base() -> None:
    stands = pair()
    turned = [stands[1], stands[0]]
    approved = plan(stands)
    assert digest_on(plan(turned, with_image(turned)), approved=approved) != approved.digest


CHANGES: dict[str, Any] = {
    "peak_devices": 99,
    "minimum_ready": (1, 1),
    "roles": ("a", "b"),
    "holds": ("half", "last-old-groups"),
    "hold_seconds": 1,
    "hold_end": "keep",
    "hold_votes": False,
    "promote": "manual",
    "slice_order": "one-by-one",
    "profile": "fast",
    "stable_for": "1",
    "risk": "low",
    "risk_reasons": ("x",),
    "gates": (),
}


@pytest.mark.parametrize("field", sorted(Bounds.__dataclass_fields__))
def test_every_bound_changes_it(field: str) -> None:
    approved = plan()
    assert approved.content and approved.base and approved.bounds
    bounds = deepcopy(approved.bounds)
    bounds[field] = CHANGES[field]
    assert plan_digest(approved.content, approved.base, bounds) != approved.digest


def bounds_of(found: Plan) -> Bounds:
    assert found.bounds
    return Bounds(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.bounds.items()})


@pytest.mark.parametrize(
    ("replicas", "options", "says"),
    [
        ((4, 2), {}, ""),
        ((5, 2), {}, "devices"),
        ((3, 2), {}, "prefill keeps 3"),
        ((3, 2), {"minimum_ready": {"prefill": 2, "decode": 1}}, ""),
        ((4, 2), {"holds": ["every-row"]}, ""),
        ((4, 2), {"holds": ["half"]}, "first-complete-row"),
        ((4, 2), {"hold_max_age": 60}, ""),
        ((4, 2), {"hold_max_age": 5 * 3600}, "18000"),
        ((4, 2), {"hold_votes": False}, "risk"),
    ],
)
def test_worse_is_said_and_better_is_not(replicas: tuple[int, int], options: Json, says: str) -> None:
    same_minimum = {"minimum_ready": options["minimum_ready"]} if "minimum_ready" in options else {}
    approved = plan(**same_minimum)
    now = plan(pair(*replicas), **options)
    assert approved.bounds
    reasons = bounds_worse(approved.bounds, bounds_of(now))
    assert (says in " ".join(reasons)) and bool(reasons) == bool(says), reasons


def test_peak_devices_count_the_moment_between_two_rows() -> None:
    """Growth comes before the drain of the same step: what passes counts, not only what stands."""
    stands = [role("prefill", 4), role("decode", 1)]
    found = plan(stands, with_image(stands))
    assert found.bounds and found.rows
    standing = max(sum(row["groups"]) for row in found.rows["rows"])
    assert found.bounds["peak_devices"] >= standing
    rows = found.rows["rows"]
    passing = max(sum(a["old"]) + sum(b["new"]) for a, b in zip(rows, rows[1:], strict=False))
    assert found.bounds["peak_devices"] == max(standing, passing)


def test_what_the_fast_profile_writes_afterwards_is_voted_on() -> None:
    approved, other = plan(), plan()
    assert other.content
    other.content["diff"]["afterwards"] = [
        {"path": "roles[prefill].spec.rolloutStrategy", "before": {}, "after": {"maxUnavailable": "100%"}}
    ]
    assert digest_on(other, approved=approved) != approved.digest
