"""Gates: measured conditions that must be green before a rollout goes on."""

from __future__ import annotations

from policy.gates.defaults import default_gates
from policy.gates.evidence import measure_parity, measure_probes
from policy.gates.gate import Gate, Judgement, Measurement, Overall
from policy.gates.judge import judge_gate, judge_gates
from policy.gates.versions import HISTORIES, Era, History

__all__ = [
    "HISTORIES",
    "Era",
    "Gate",
    "History",
    "Judgement",
    "Measurement",
    "Overall",
    "default_gates",
    "judge_gate",
    "judge_gates",
    "measure_parity",
    "measure_probes",
]
