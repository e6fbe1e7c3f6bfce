from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.chance import SplitMix64
from policy.parity import Answer, ParityRule, ParityVerdict, PromptEvidence, judge_parity

LENGTH = 64


def said(text: int, *, logprob: float = -0.05, proved: bool = True, length: int = LENGTH) -> Answer:
    """An answer; different numbers are clearly different texts."""
    return Answer((text,) * length, (logprob,) * length, cut=True, disaggregated=proved)


def evidence(
    path: Callable[[int], Answer], reference: Callable[[int], Answer], count: int = 24
) -> list[PromptEvidence]:
    return [
        PromptEvidence(f"p{number:02}", (path(number),), (reference(0), reference(number)))
        for number in range(count)
    ]


def judge(found: list[PromptEvidence], **fields: object) -> ParityVerdict:
    return judge_parity(found, **({"reference": "direct", "seed": 7} | fields))  # type: ignore[arg-type]


def same(_: int) -> Answer:
    return said(1)


def test_a_path_that_says_the_same_is_ok() -> None:
    verdict = judge(evidence(same, same))
    assert (verdict.verdict, verdict.prompts, verdict.bound, verdict.jitter) == ("ok", 24, 0.0, 0.0)
    assert verdict.sentence == (
        "The path disagrees with the reference by 0 % over 24 prompts, the reference with itself by 0 %. "
        "Allowed is 5 % more."
    )


def test_a_path_that_says_something_else_in_a_third_is_red_and_names_the_worst() -> None:
    verdict = judge(evidence(lambda number: said(2 if number % 3 == 0 else 1), same))
    assert (verdict.verdict, verdict.reason) == ("red", "beyond-margin")
    assert verdict.path == pytest.approx(1 / 3)
    assert verdict.bound is not None and 0.05 < verdict.bound < 1 / 3
    assert [name for name, _ in verdict.worst] == ["p00", "p03", "p06", "p09", "p12"]


def test_the_references_own_jitter_is_taken_off() -> None:
    """Path and reference both say something else once in eight: alike, so nothing is red."""

    def shaky(number: int) -> Answer:
        return said(2 if number % 8 == 1 else 1)

    found = [
        PromptEvidence(f"p{n}", (shaky(n), same(n)), (shaky(n), same(n), same(n), same(n))) for n in range(24)
    ]
    verdict = judge(found)
    assert verdict.verdict == "ok"
    assert verdict.jitter is not None and verdict.jitter > 0.05


def test_a_reference_that_does_not_agree_with_itself_tells_nothing() -> None:
    verdict = judge(evidence(same, lambda number: said(number % 2 + 1)))
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "jitter-too-large")


def test_unlikely_tokens_are_garbage() -> None:
    verdict = judge(evidence(lambda _: said(2, logprob=-3.05), same))
    assert verdict.verdict == "garbage"
    assert (
        verdict.sentence == "Tokens are 3.0 nats less likely than the reference's: the answers are garbage."
    )


def test_the_references_own_score_of_the_tokens_is_believed_more_than_the_paths() -> None:
    """A corrupted cache can be sure of its nonsense."""
    sure = Answer((2,) * LENGTH, (-0.01,) * LENGTH, cut=True, disaggregated=True, scored=(-6.0,) * LENGTH)
    assert judge(evidence(lambda _: sure, same)).verdict == "garbage"
    assert judge(evidence(lambda _: replace(sure, scored=()), same)).verdict == "red"


def test_http_200_with_the_same_text_everywhere_but_lower_certainty_is_red_without_a_flip() -> None:
    verdict = judge(evidence(lambda _: said(1, logprob=-0.45), same))
    assert (verdict.verdict, verdict.path) == ("red", pytest.approx(0.2))


def test_answers_without_proof_of_disaggregation_do_not_count() -> None:
    verdict = judge(evidence(lambda number: said(2, proved=number < 10), same))
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "disaggregation-not-proved")
    assert (verdict.unproved, verdict.prompts) == (14, 10)


@pytest.mark.parametrize(
    ("found", "fields", "reason"),
    [
        (evidence(same, same), {"reference": "none"}, "no-reference"),
        ([], {}, "no-reference"),
        ([PromptEvidence("p", (said(1),), ())] * 24, {}, "no-reference"),
        (evidence(same, same, 19), {}, "too-few-prompts"),
        ([PromptEvidence("p", (said(1),), (said(1),))] * 24, {}, "jitter-not-measured"),
        (evidence(lambda _: said(1, length=5), lambda _: said(1, length=5)), {}, "answers-too-short"),
    ],
)
def test_without_what_it_needs_parity_is_never_ok(
    found: list[PromptEvidence], fields: dict[str, object], reason: str
) -> None:
    verdict = judge(found, **fields)
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", reason)
    assert verdict.sentence and verdict.next_action


def test_a_difference_that_may_be_chance_is_neither_ok_nor_red() -> None:
    verdict = judge(evidence(lambda number: said(2 if number in (3, 9) else 1), same))
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "undecided")


def test_golden_outputs_serve_as_reference() -> None:
    assert judge(evidence(same, same), reference="golden").verdict == "ok"
    assert judge(evidence(lambda _: said(2), same), reference="golden").verdict == "red"


def test_a_second_answer_out_of_what_the_first_left_behind_is_no_proof() -> None:
    """Golden outputs have one text asked twice: where cache_salt is ignored the first fills the cache of the second."""
    found = [PromptEvidence(f"p{n}", (said(1, proved=False), said(1)), (said(1), said(1))) for n in range(24)]
    verdict = judge(found, reference="golden")
    assert (verdict.verdict, verdict.reason) == ("not-evaluable", "disaggregation-not-proved")
    assert (verdict.prompts, verdict.unproved) == (0, 24)
    assert "cache_salt" in verdict.next_action
    assert judge(found, reference="direct").verdict == "ok", "the text of direct references is new each time"


@given(st.lists(st.lists(st.booleans(), max_size=3), max_size=40))
def test_against_golden_outputs_a_prompt_counts_whole_or_not_at_all(proofs: list[list[bool]]) -> None:
    found = [
        PromptEvidence(f"p{n}", tuple(said(1, proved=each) for each in answers), (said(1), said(1)))
        for n, answers in enumerate(proofs)
    ]
    whole = [answers for answers in proofs if answers and all(answers)]
    verdict = judge(found, reference="golden")
    assert verdict.prompts == len(whole)
    assert verdict.unproved == len(proofs) - len(whole)
    assert (verdict.verdict == "ok") == (len(whole) >= ParityRule().minimum_prompts)


def test_what_is_lacking_is_said_by_what_was_to_be_compared_with() -> None:
    lone = [PromptEvidence("p", (said(1),), ())] * 24
    actions = [judge(lone, reference=each).next_action for each in ("direct", "golden", "none")]
    assert "reach the decode pods" in actions[0] and "record its answers as golden outputs" in actions[1]
    assert len(set(actions)) == 3


def test_equal_seeds_give_equal_bounds() -> None:
    found = evidence(lambda number: said(2 if number % 3 == 0 else 1), same)
    assert judge(found).bound == judge(found).bound


@pytest.mark.parametrize("prompts", [20, 40])
def test_a_verdict_takes_less_than_a_second(prompts: int) -> None:
    stream = SplitMix64(prompts)

    def noisy() -> Answer:
        return Answer(
            tuple(range(64)), tuple(-stream.unit() for _ in range(64)), cut=True, disaggregated=True
        )

    found = [
        PromptEvidence(f"p{n}", tuple(noisy() for _ in range(3)), tuple(noisy() for _ in range(3)))
        for n in range(prompts)
    ]
    begun = time.perf_counter()
    judge(found, rule=ParityRule(resamples=2000), seed=1000 + prompts)  # a seed that nobody drew for yet
    took = time.perf_counter() - begun
    print(f"{prompts} prompts of 64 tokens, 3 + 3 repetitions, 2000 resamples: {took:.3f} s")
    assert took < 1.0
