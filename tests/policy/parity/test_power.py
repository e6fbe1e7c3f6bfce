"""The rates that parity promises, by simulation; each is printed as a number."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from policy.parity import ParityRule, Study, false_red_rate, power

JITTER = 0.02
RUNS = 1_000
# One in a hundred, plus three standard errors of a rate of one in a hundred over the runs.
ALLOWED = 0.01 + 3 * math.sqrt(0.01 * 0.99 / RUNS)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(JITTER, JITTER), (2 * JITTER, 2 * JITTER), (2 * JITTER, JITTER), (5 * JITTER, JITTER)],
)
def test_a_path_that_corrupts_nothing_is_red_in_at_most_one_of_a_hundred_cases(
    ours: float, theirs: float
) -> None:
    rate = false_red_rate(Study(jitter=theirs, path_jitter=ours, runs=RUNS), seed=1)
    print(f"jitter of path {ours}, of reference {theirs} nats: {rate:.2%} of {RUNS} runs are red")
    assert rate <= ALLOWED


def test_the_bound_alone_keeps_the_rate_where_no_margin_is_allowed() -> None:
    rate = false_red_rate(
        Study(prompts=20, jitter=2 * JITTER, runs=RUNS, rule=ParityRule(margin=0.0)), seed=5
    )
    print(f"margin 0, jitter {2 * JITTER} nats: {rate:.2%} of {RUNS} runs are red")
    assert 0.0 < rate <= ALLOWED


def test_tokens_alone_are_not_red_by_chance_either() -> None:
    study = Study(jitter=2 * JITTER, runs=RUNS, logprobs=False, rule=ParityRule(most_jitter=1.0))
    rate = false_red_rate(study, seed=2)
    found = power(0.02, replace(study, runs=200), seed=2)
    print(
        f"tokens alone, jitter {2 * JITTER}: {rate:.2%} false red; 2 % corrupt tokens are found in {found:.1%}"
    )
    assert rate <= ALLOWED


@pytest.mark.parametrize(("prompts", "jitter"), [(20, JITTER), (20, 2 * JITTER), (40, 2 * JITTER)])
def test_a_pair_that_corrupts_two_of_a_hundred_tokens_is_found(prompts: int, jitter: float) -> None:
    begun = time.perf_counter()
    found = power(0.02, Study(prompts=prompts, jitter=jitter), seed=3)
    took = time.perf_counter() - begun
    print(
        f"2 % corrupt tokens, {prompts} prompts of 64 tokens, jitter {jitter}: found in {found:.1%} ({took:.1f} s)"
    )
    assert found >= 0.95


def test_power_grows_with_what_is_corrupted_and_with_prompts() -> None:
    rates = [power(part, Study(), seed=4) for part in (0.002, 0.005, 0.02)]
    print(f"24 prompts of 64 tokens: corrupt 0.2, 0.5, 2 % of tokens are found in {rates}")
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]
    assert power(0.005, Study(prompts=60, runs=100), seed=4) > rates[1]


def test_rates_repeat_with_their_seed() -> None:
    study = Study(runs=30)
    assert power(0.005, study, seed=5) == power(0.005, study, seed=5)


@pytest.mark.parametrize("part", [-0.1, 1.1])
def test_what_is_no_part_of_tokens_is_refused(part: float) -> None:
    with pytest.raises(ValueError):
        power(part, Study(), seed=1)
