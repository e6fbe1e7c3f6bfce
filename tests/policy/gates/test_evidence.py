from __future__ import annotations

import pytest

from policy.gates import default_gates, judge_gate, measure_parity
from policy.parity import Answer, ParityVerdict, PromptEvidence, judge_parity

PARITY = next(gate for gate in default_gates("production") if gate.id == "parity")


def parity(text: int, logprob: float = -0.05, reference: str = "direct") -> ParityVerdict:
    def said(token: int, chance: float) -> Answer:
        return Answer((token,) * 64, (chance,) * 64, cut=True, disaggregated=True)

    found = [PromptEvidence(f"p{n}", (said(text, logprob),), (said(1, -0.05),) * 2) for n in range(24)]
    return judge_parity(found, reference=reference, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (parity(1), "green"),
        (parity(2), "red"),
        (parity(2, -4.0), "red"),
        (parity(1, reference="none"), "not-evaluable"),
    ],
)
def test_parity_becomes_a_gate_that_is_green_only_when_it_is_ok(
    verdict: ParityVerdict, expected: str
) -> None:
    judgement = judge_gate(PARITY, measure_parity(verdict, age_s=30.0, revision="d03fa885"))
    assert judgement.verdict == expected
    if expected == "red":
        assert judgement.sentence == verdict.sentence
    if expected == "not-evaluable":
        assert judgement.sentence == "Output parity: There is nothing to compare with."
