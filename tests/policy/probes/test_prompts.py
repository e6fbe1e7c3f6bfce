from __future__ import annotations

import hashlib
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.probes import PROMPT_SET, fixed_prompts, fresh_salts, salt_prompt
from policy.probes.prompts import PASSAGES, QUESTIONS


def test_there_are_enough_prompts_and_no_two_alike() -> None:
    prompts = fixed_prompts()
    assert len(prompts) == 24
    assert len({prompt.id for prompt in prompts}) == len({prompt.text for prompt in prompts}) == 24
    assert len(set(PASSAGES)) == len(PASSAGES)


def test_golden_outputs_stay_good_as_long_as_the_set_has_this_number() -> None:
    """Whoever changes a text gives the set a new number, because recorded outputs belong to these texts."""
    digest = hashlib.sha256("\n".join([*PASSAGES, *QUESTIONS]).encode()).hexdigest()
    assert (PROMPT_SET, digest[:16]) == ("1", "5b4ec1d7fbdf8b10")


@given(st.integers(0, 4_000))
def test_every_prompt_is_longer_than_the_decider_asks_for_and_not_much(threshold: int) -> None:
    for prompt in fixed_prompts(longer_than=threshold):
        assert prompt.least_tokens == len(prompt.text.split())
        assert threshold < prompt.least_tokens <= max(threshold, 49) + 70


def test_a_threshold_gives_the_same_texts_every_time() -> None:
    assert fixed_prompts(longer_than=512) == fixed_prompts(longer_than=512)
    with pytest.raises(ValueError):
        fixed_prompts(longer_than=-1)


def test_salts_make_every_request_new_from_its_first_words_on() -> None:
    prompt = fixed_prompts()[0]
    salts = list(islice(fresh_salts(seed=3), 10_000))
    assert len(set(salts)) == 10_000
    assert all(len(salt) == 16 for salt in salts)
    one, other = (salt_prompt(prompt, salt) for salt in salts[:2])
    assert one.split()[:2] != other.split()[:2]
    assert one.endswith(prompt.text)
    assert set(salts).isdisjoint(islice(fresh_salts(seed=4), 10_000))
