"""What an approval covers: content, base and bounds under one digest. Rows are derived and stay outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from policy.approval import lifecycle
from policy.canonical import digest

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that an approved change may take, and the least that must serve meanwhile."""

    peak_devices: int
    minimum_ready: tuple[int, ...]  # per role of the rows
    roles: tuple[str, ...]
    holds: tuple[str, ...]
    hold_seconds: int
    hold_end: str
    hold_votes: bool
    promote: str
    slice_order: str
    profile: str
    stable_for: str
    risk: str
    risk_reasons: tuple[str, ...]
    gates: tuple[Json, ...]  # gate_rules.rules_of: what is judged, not what differs from a default

    def as_json(self) -> Json:
        """Plain JSON, lists for tuples."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }


def plan_digest(content: Mapping[str, Any], base: Mapping[str, Any], bounds: Mapping[str, Any]) -> str:
    """Digest of what people vote on. Replicas that stand on both sides are left out of the content: a scaled set
    re-plans without losing its votes (DESIGN 4.3). Image IDs seen at the check are evidence, not base."""
    return digest(
        {
            "content": {
                "changes": content["diff"]["changes"],
                "afterwards": content["diff"].get("afterwards", []),
                "templates": content["templates_digest"],
            },
            "base": {key: value for key, value in base.items() if key != "images"},
            "bounds": dict(bounds),
        }
    )


def bounds_worse(approved: Mapping[str, Any], now: Bounds) -> list[str]:
    """Sentences for every way in which `now` goes beyond the approved bounds."""
    return [
        reason.sentence
        for reason in lifecycle.bounds_worse(policy_bounds(approved), policy_bounds(now.as_json()))
    ]


def policy_bounds(bounds: Mapping[str, Any]) -> lifecycle.Bounds:
    """The part that policy.approval compares."""
    return lifecycle.Bounds(
        peak_devices=bounds["peak_devices"],
        minimum_ready=dict(zip(bounds["roles"], bounds["minimum_ready"], strict=True)),
        holds=frozenset(bounds["holds"]),
        hold_seconds=bounds["hold_seconds"],
        risk=bounds["risk"],
    )
