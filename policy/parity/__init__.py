"""Parity: whether the path under test says what the reference says, beyond what the reference says of itself."""

from __future__ import annotations

from policy.parity.answers import CLEAR, Answer, disagreement
from policy.parity.golden import Unfit, judge_golden
from policy.parity.power import Study, false_red_rate, power
from policy.parity.verdict import ParityRule, ParityVerdict, PromptEvidence, judge_parity

__all__ = [
    "CLEAR",
    "Answer",
    "ParityRule",
    "ParityVerdict",
    "PromptEvidence",
    "Study",
    "Unfit",
    "disagreement",
    "false_red_rate",
    "judge_golden",
    "judge_parity",
    "power",
]
