from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.proportions import (
    binomial_at_least,
    binomial_at_most,
    clopper_pearson,
    fisher_more,
    student_quantile,
)

CHANCES = st.integers(0, 20).map(lambda twentieth: twentieth / 20)


def exact_at_most(successes: int, trials: int, chance: float) -> float:
    p = Fraction(chance)
    return float(sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1)))


@given(st.integers(0, 60), st.data(), CHANCES)
def test_tails_are_the_sums_they_stand_for(trials: int, data: st.DataObject, chance: float) -> None:
    successes = data.draw(st.integers(0, trials))
    assert binomial_at_most(successes, trials, chance) == pytest.approx(
        exact_at_most(successes, trials, chance), abs=1e-12
    )
    above = 1.0 - (exact_at_most(successes - 1, trials, chance) if successes else 0.0)
    assert binomial_at_least(successes, trials, chance) == pytest.approx(above, abs=1e-12)


def test_tails_of_many_tries_agree_with_the_normal_distribution() -> None:
    trials, chance = 1_000_000, 0.2
    for score in (-3.0, -1.0, 0.0, 2.0):
        count = round(trials * chance + score * math.sqrt(trials * chance * (1 - chance)))
        normal = 0.5 * math.erfc(
            -(count + 0.5 - trials * chance) / math.sqrt(2 * trials * chance * (1 - chance))
        )
        assert binomial_at_most(count, trials, chance) == pytest.approx(normal, abs=1e-4)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_the_tables(successes: int, trials: int, low: float, high: float) -> None:
    assert clopper_pearson(successes, trials, level=0.95) == pytest.approx((low, high), abs=1e-4)


@settings(max_examples=50)
@given(st.integers(1, 40), CHANCES)
def test_an_interval_covers_the_truth_at_least_as_often_as_it_says(trials: int, chance: float) -> None:
    covered = 0.0
    for successes in range(trials + 1):
        low, high = clopper_pearson(successes, trials, level=0.99)
        if low <= chance <= high:
            covered += binomial_at_most(successes, trials, chance) - (
                binomial_at_most(successes - 1, trials, chance) if successes else 0.0
            )
    assert covered >= 0.99 - 1e-9


def test_failures_that_all_fall_on_one_side_are_as_unlikely_as_one_choice_of_many() -> None:
    assert fisher_more(8, 8, 0, 16) == pytest.approx(1 / math.comb(24, 8))
    assert fisher_more(0, 8, 3, 16) == 1.0
    assert fisher_more(1, 10, 1, 10) > 0.5


@pytest.mark.parametrize(("freedom", "value"), [(1, 31.821), (19, 2.5395), (39, 2.4258), (1000, 2.3301)])
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert student_quantile(0.99, freedom) == pytest.approx(value, abs=1e-3)
    with pytest.raises(ValueError):
        student_quantile(0.5, freedom)


@pytest.mark.parametrize("count", [(-1, 3, 0.5), (4, 3, 0.5), (1, 3, 1.5)])
def test_what_is_no_count_is_refused(count: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError):
        binomial_at_most(*count)
