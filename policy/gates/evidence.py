"""Verdicts over probes and parity as measurements of gates."""

from __future__ import annotations

from policy.gates.gate import Measurement, State
from policy.parity import ParityVerdict
from policy.probes import ProbeVerdict


def measure_probes(verdict: ProbeVerdict, *, age_s: float, revision: str = "") -> Measurement:
    """The part of probes that succeeded; a finding of theirs makes the gate red whatever the number is."""
    if verdict.verdict == "not-evaluable":
        state: State = "no-data" if verdict.judged else "no-traffic"
        return Measurement(state, revision=revision, note=verdict.sentence.rstrip("."), age_s=age_s)
    return Measurement(
        "value",
        verdict.succeeded / verdict.judged if verdict.judged else 0.0,
        verdict.judged,
        age_s,
        revision=revision,
        finding=verdict.sentence if verdict.verdict == "red" else "",
    )


def measure_parity(verdict: ParityVerdict, *, age_s: float, revision: str = "") -> Measurement:
    """The lower bound of what the path adds to the reference's own disagreement."""
    if verdict.verdict == "not-evaluable" or verdict.bound is None:
        return Measurement("no-data", revision=revision, note=verdict.sentence.rstrip("."), age_s=age_s)
    finding = "" if verdict.verdict == "ok" else verdict.sentence
    return Measurement("value", verdict.bound, verdict.prompts, age_s, revision=revision, finding=finding)
