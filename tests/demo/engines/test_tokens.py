"""The simulated model: the same weights answer the same, and jitter flips what it says it flips."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deploy.demo.engines.tokens import VOCABULARY, Corruption, Model, Sampling, noise_sd

_MANY = 20_000


def texts(model: Model, count: int = 64, **options: object) -> list[str]:
    return [token.text for token in model.answer(count, **options)]


@given(some.text(), some.binary(), some.integers(1, 40))
def test_without_jitter_answers_are_bit_equal(key: str, prompt: bytes, count: int) -> None:
    first, second = Model(key, prompt).answer(count), Model(key, prompt).answer(count)
    assert first == second
    for token in first:
        names = [text for text, _ in token.top]
        assert len(set(names)) == len(names)
        assert token.text == names[0] and token.logprob == max(value for _, value in token.top)
        assert sum(math.exp(value) for _, value in token.top) < 1


def test_other_weights_or_another_prompt_answer_otherwise() -> None:
    base = texts(Model("w", b"p"))
    for other in (Model("v", b"p"), Model("w", b"q")):
        same = sum(a == b for a, b in zip(base, texts(other), strict=True))
        assert same < 5
    assert len(set(VOCABULARY)) == 512


@pytest.mark.parametrize("jitter", [0.001, 0.01, 0.05, 0.2])
def test_jitter_flips_tokens_at_the_rate_it_names(jitter: float) -> None:
    model = Model("weights", b"prompt")
    base = texts(model, _MANY)
    noisy = model.answer(_MANY, noise=random.Random(7), sd=noise_sd(jitter))
    flips = sum(a != b.text for a, b in zip(base, noisy, strict=True))
    sampling_error = 4 * math.sqrt(jitter * (1 - jitter) / _MANY)
    assert abs(flips / _MANY - jitter) < sampling_error + 0.03 * jitter


@pytest.mark.parametrize("jitter", [0.001, 0.01, 0.05])
def test_log_probabilities_vary_by_no_more_than_is_said(jitter: float) -> None:
    model = Model("weights", b"prompt")
    base = model.answer(_MANY)
    noisy = model.answer(_MANY, noise=random.Random(7), sd=noise_sd(jitter))
    moves = [b.logprob - a.logprob for a, b in zip(base, noisy, strict=True) if a.text == b.text]
    assert 0.2 * noise_sd(jitter) < statistics.pstdev(moves) <= noise_sd(jitter)
    assert noise_sd(jitter) == pytest.approx(3.545 * jitter, rel=0.25)


def test_only_near_ties_flip() -> None:
    model = Model("weights", b"prompt")
    noisy = model.answer(_MANY, noise=random.Random(7), sd=noise_sd(0.01))
    for position, token in enumerate(noisy):
        ids, logits = model.candidates(position)
        if token.text != VOCABULARY[ids[0]]:
            assert token.text == VOCABULARY[ids[1]] and -logits[1] < 0.4


def test_no_jitter_means_no_noise_and_too_much_is_refused() -> None:
    assert noise_sd(0) == 0
    for jitter in (-0.1, 0.3, 1.0):
        with pytest.raises(ValueError, match="jitter"):
            noise_sd(jitter)


@given(some.floats(0.05, 0.95), some.booleans(), some.integers(0, 2**16))
def test_corruption_hits_its_fraction_of_positions_the_same_way_each_time(
    fraction: float, quiet: bool, number: int
) -> None:
    model, cause = Model("w", str(number).encode()), Corruption(fraction, "pair", quiet)
    base, wrong = model.answer(300), model.answer(300, corruption=cause)
    assert wrong == model.answer(300, corruption=cause)
    hit = [a.text != b.text for a, b in zip(base, wrong, strict=True)]
    assert hit == [token.wrong for token in wrong]
    assert abs(sum(hit) / 300 - fraction) < 5 * math.sqrt(0.25 / 300)


def test_a_seed_repeats_a_sampled_answer_and_heat_spreads_it() -> None:
    model = Model("w", b"p")
    warm = texts(model, sampling=Sampling(1.0, 5))
    assert warm == texts(model, sampling=Sampling(1.0, 5))
    assert warm != texts(model, sampling=Sampling(1.0, 6)) and warm != texts(model)
    nearly_cold = texts(model, sampling=Sampling(0.001, 5))
    assert sum(a != b for a, b in zip(nearly_cold, texts(model), strict=True)) <= 1
