from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.chance import SplitMix64, bootstrap_lower


def chi_square(counts: list[int]) -> float:
    """Standard scores of a chi-square statistic against equal frequencies (normal for many cells)."""
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    freedom = len(counts) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def test_the_published_numbers_of_the_generator_come_out() -> None:
    stream = SplitMix64(1234567)
    assert [stream.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize("seed", [0, 1, 2, 7, 2**63, 2**64 - 1])
@pytest.mark.parametrize("cells", [2, 7, 100])
def test_numbers_below_a_limit_are_uniform(seed: int, cells: int) -> None:
    stream = SplitMix64(seed)
    counts = Counter(stream.below(cells) for _ in range(20_000))
    assert abs(chi_square([counts[cell] for cell in range(cells)])) < 5


@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_units_are_uniform_and_not_correlated_with_the_next(seed: int) -> None:
    stream = SplitMix64(seed)
    units = [stream.unit() for _ in range(40_000)]
    assert all(0.0 <= unit < 1.0 for unit in units)
    assert abs(chi_square(list(Counter(int(unit * 50) for unit in units).values()))) < 5
    pairs = Counter((int(a * 10), int(b * 10)) for a, b in zip(units[::2], units[1::2], strict=True))
    assert abs(chi_square([pairs[a, b] for a in range(10) for b in range(10)])) < 5


def test_neighbouring_seeds_and_forks_have_nothing_in_common() -> None:
    streams = [SplitMix64(seed) for seed in range(50)] + [SplitMix64(9).fork(label) for label in range(50)]
    firsts = [stream.next() for stream in streams]
    assert len(set(firsts)) == 100
    ones = [first.bit_count() for first in firsts]
    assert abs(sum(ones) / 100 - 32) < 2


def test_every_bit_of_a_number_is_one_half_of_the_time() -> None:
    stream = SplitMix64(5)
    ones = [0] * 64
    for _ in range(10_000):
        number = stream.next()
        for bit in range(64):
            ones[bit] += number >> bit & 1
    assert all(abs(count - 5_000) < 5 * 50 for count in ones)


def test_normal_numbers_have_the_quantiles_of_the_normal_distribution() -> None:
    stream = SplitMix64(11)
    drawn = [stream.gauss() for _ in range(40_000)]
    for limit, expected in ((-1.959964, 0.025), (-1.0, 0.158655), (0.0, 0.5), (1.644854, 0.95)):
        seen = sum(number <= limit for number in drawn) / len(drawn)
        assert abs(seen - expected) < 5 * math.sqrt(expected * (1 - expected) / len(drawn))


def test_every_order_is_equally_likely() -> None:
    stream = SplitMix64(3)
    orders = Counter[str]()
    for _ in range(12_000):
        letters = list("abcd")
        stream.shuffle(letters)
        orders["".join(letters)] += 1
    assert len(orders) == 24
    assert abs(chi_square(list(orders.values()))) < 5


def test_no_number_is_below_zero_or_less() -> None:
    with pytest.raises(ValueError):
        SplitMix64(1).below(0)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.integers(0, 100))
def test_a_bound_lies_between_the_least_value_and_the_mean_and_repeats(
    values: list[float], seed: int
) -> None:
    bound = bootstrap_lower(values, level=0.99, resamples=400, seed=seed)
    assert min(values) - 1e-9 <= bound <= sum(values) / len(values) + 1e-9
    assert bound == bootstrap_lower(values, level=0.99, resamples=400, seed=seed)


@pytest.mark.parametrize("size", [20, 40])
def test_a_bound_is_above_the_truth_in_about_one_of_a_hundred_cases(size: int) -> None:
    stream = SplitMix64(17)
    above = 0
    for _ in range(2_000):
        values = [stream.gauss() for _ in range(size)]
        above += bootstrap_lower(values, level=0.99, resamples=2_000, seed=1) > 0.0
    print(f"99 % bound of {size} normal values above the mean in {above} of 2000 cases")
    assert above <= 2_000 * 0.01 + 3 * math.sqrt(2_000 * 0.01 * 0.99)


@pytest.mark.parametrize(
    ("values", "level", "resamples"), [([], 0.99, 200), ([1.0], 1.0, 200), ([1.0], 0.99, 50)]
)
def test_a_bound_that_cannot_be_had_is_refused(values: list[float], level: float, resamples: int) -> None:
    with pytest.raises(ValueError):
        bootstrap_lower(values, level=level, resamples=resamples, seed=1)
