from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.parity import CLEAR, Answer, disagreement


def answer(tokens: str, *logprobs: float, **fields: Any) -> Answer:
    return Answer(tuple(tokens), logprobs, **fields)


def sure(tokens: str, **fields: Any) -> Answer:
    return answer(tokens, *[-0.01] * len(tokens), **fields)


def test_equal_answers_do_not_disagree() -> None:
    assert disagreement(sure("abcd"), sure("abcd")) == 0.0
    assert disagreement(answer("abcd"), answer("abcd")) == 0.0


def test_a_clear_difference_is_everything_wherever_it_is() -> None:
    assert disagreement(sure("abcd"), sure("abcx")) == 1.0
    assert disagreement(sure("abcd"), sure("xbcd")) == 1.0


def test_a_flip_of_a_tie_is_worth_almost_nothing() -> None:
    tie = -math.log(2) + 0.01  # a little more than half
    flipped = disagreement(answer("ab", -0.01, tie), answer("ax", -0.01, tie))
    assert flipped == pytest.approx(0.02 / CLEAR, rel=0.05)


def test_alternatives_say_how_far_the_other_token_was() -> None:
    one = answer("ab", -0.01, -1.2, alternatives=({}, {"b": -1.2, "x": -1.3}))
    other = answer("ax", -0.01, -1.2, alternatives=({}, {"x": -1.2, "b": -1.25}))
    assert disagreement(one, other) == pytest.approx(0.1 / CLEAR)
    far = answer("ab", -0.01, -0.2, alternatives=({}, {"b": -0.2, "c": -2.5, "d": -3.0}))
    assert disagreement(far, other) == 1.0


def test_what_follows_a_difference_does_not_count() -> None:
    tie = -math.log(2)
    early = disagreement(answer("aaaa", tie, -0.01, -0.01, -0.01), answer("bbbb", tie, -0.01, -0.01, -0.01))
    assert early == 0.0


def test_a_cache_that_is_a_little_wrong_everywhere_shows_without_a_flip() -> None:
    shifted = disagreement(answer("abcd", *[-0.1] * 4), answer("abcd", *[-0.5] * 4))
    assert shifted == pytest.approx(0.4 / CLEAR)


def test_without_log_probabilities_every_difference_is_everything() -> None:
    assert disagreement(answer("abcd"), answer("abcx")) == 1.0


def test_an_answer_that_was_cut_does_not_differ_by_its_end() -> None:
    assert disagreement(sure("abc", cut=True), sure("abcd")) == 0.0
    assert disagreement(sure("abc"), sure("abcd")) == 1.0
    assert disagreement(answer("abc"), answer("abc")) == 0.0
    assert disagreement(answer(""), sure("abc")) == 1.0


def test_numbers_that_do_not_fit_the_tokens_are_refused() -> None:
    with pytest.raises(ValueError):
        answer("abc", -0.1)


TOKENS = st.text(alphabet="ab", max_size=6)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    tokens = draw(TOKENS)
    logprobs = draw(st.just([]) | st.lists(st.floats(-30, 0), min_size=len(tokens), max_size=len(tokens)))
    return Answer(tuple(tokens), tuple(logprobs), cut=draw(st.booleans()))


@given(answers(), answers())
def test_disagreement_is_symmetric_and_between_nothing_and_everything(one: Answer, other: Answer) -> None:
    assert 0.0 <= disagreement(one, other) <= 1.0
    assert disagreement(one, other) == disagreement(other, one)
    assert disagreement(one, one) == 0.0
