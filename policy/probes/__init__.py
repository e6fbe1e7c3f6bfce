"""Probes: requests through the gateway, pinned to one revision, that show the path itself."""

from __future__ import annotations

from policy.probes.attribution import Doubt
from policy.probes.facts import Finding, GroupCounters, ProbeResult, Surroundings
from policy.probes.outcome import disaggregation_of, outcome_of
from policy.probes.prompts import PROMPT_SET, Prompt, fixed_prompts, fresh_salts, salt_prompt
from policy.probes.schedule import Group, PlannedProbe, Schedule, draws_to_cover, plan_probes
from policy.probes.verdict import Coverage, ProbeVerdict, judge_probes

__all__ = [
    "PROMPT_SET",
    "Coverage",
    "Doubt",
    "Finding",
    "Group",
    "GroupCounters",
    "PlannedProbe",
    "ProbeResult",
    "ProbeVerdict",
    "Prompt",
    "Schedule",
    "Surroundings",
    "disaggregation_of",
    "draws_to_cover",
    "fixed_prompts",
    "fresh_salts",
    "judge_probes",
    "outcome_of",
    "plan_probes",
    "salt_prompt",
]
