"""Everything that is known to go wrong with a planned change, from facts to sentences.

Sources: behaviour of the DisaggregatedSet and LeaderWorkerSet controllers in lws v0.9.0 and newer.
"""

from __future__ import annotations

from policy.rollout.facts import FitFacts, PlanFacts, PodFacts, RoleFacts, ScalerFacts, read_pod_facts
from policy.rollout.hazard import Hazard, Severity
from policy.rollout.hazards_pods import pod_hazards
from policy.rollout.hazards_rollout import rollout_hazards
from policy.rollout.hazards_set import set_hazards

__all__ = [
    "FitFacts",
    "Hazard",
    "PlanFacts",
    "PodFacts",
    "RoleFacts",
    "ScalerFacts",
    "Severity",
    "find_hazards",
    "read_pod_facts",
]

_ORDER: dict[Severity, int] = {"block": 0, "warn": 1, "info": 2}


def find_hazards(facts: PlanFacts) -> list[Hazard]:
    """Every hazard of the plan, the blocking ones first; within a severity in a fixed order.

    Facts that are not known make no hazard, except where not knowing is one (fit, version, request path).
    """
    found = [*rollout_hazards(facts), *set_hazards(facts), *pod_hazards(facts)]
    return sorted(found, key=lambda hazard: _ORDER[hazard.severity])
