"""Answers are kept as golden outputs only where later answers could be compared with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.parity import Answer, PromptEvidence, judge_golden, judge_parity
from tests.policy.parity.test_verdict import said


def answers(count: int = 24, *each: Answer) -> dict[str, Sequence[Answer]]:
    """So many prompts, each with these answers."""
    return {f"p{number:02}": each or (said(1), said(1)) for number in range(count)}


def reason(found: Mapping[str, Sequence[Answer]]) -> str:
    unfit = judge_golden(found)[1]
    assert unfit is None or (unfit.sentence and unfit.next_action)
    return unfit.reason if unfit else ""


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (answers(), ""),
        (answers(20), ""),
        (answers(19), "too-few-answers"),
        ({}, "too-few-answers"),
        (answers(24, said(1)), "too-few-answers"),
        (answers(23) | {"p23": (said(1), said(1, proved=False))}, "not-disaggregated"),
        (answers(24, said(1, length=8), said(1, length=8)), "answers-too-short"),
        (answers(24, said(1), said(2)), "jitter-too-large"),
    ],
)
def test_what_can_be_a_reference(found: Mapping[str, Sequence[Answer]], why: str) -> None:
    assert reason(found) == why


def test_prompts_that_were_answered_once_are_left_out() -> None:
    whole, unfit = judge_golden(answers(21) | {"p21": (said(1),), "p22": ()})
    assert unfit is None and sorted(whole) == sorted(answers(21))


@given(
    st.lists(st.lists(st.builds(said, st.integers(1, 2), proved=st.booleans()), max_size=3), max_size=26),
)
def test_what_is_kept_can_always_be_compared_with(found: list[list[Answer]]) -> None:
    """Nothing that passes makes a verdict of a path that says the same impossible."""
    whole, unfit = judge_golden({f"p{number}": each for number, each in enumerate(found)})
    if unfit is None:
        evidence = [PromptEvidence(prompt, each, each) for prompt, each in whole.items()]
        assert judge_parity(evidence, reference="golden", seed=1).verdict == "ok"
