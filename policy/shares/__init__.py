"""Shares of request paths: what should go where, what went where, and whether the two agree."""

from __future__ import annotations

from policy.shares.agreement import Agreement, LaneAgreement, agree
from policy.shares.facts import PathFacts, PodCount, PoolFacts, Reason, RouteFacts, Screener
from policy.shares.lanes import Edge, Pair, PlannedLane, PlannedShares
from policy.shares.measured import MeasuredEdge, MeasuredLane, MeasuredShares, PodPlace, measured_shares
from policy.shares.planned import planned_shares

__all__ = [
    "Agreement",
    "Edge",
    "LaneAgreement",
    "MeasuredEdge",
    "MeasuredLane",
    "MeasuredShares",
    "Pair",
    "PathFacts",
    "PlannedLane",
    "PlannedShares",
    "PodCount",
    "PodPlace",
    "PoolFacts",
    "Reason",
    "RouteFacts",
    "Screener",
    "agree",
    "measured_shares",
    "planned_shares",
]
