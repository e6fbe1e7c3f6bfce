"""`increase`, `rate` and `resets`: what is added for the ends of a range, and counters that begin anew."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.demo.metrics.asking import Points, ask, steady, told


def one(points: Points, expression: str, at: float) -> float | None:
    """The only value, if there is one."""
    found = ask(told(("c_total", points)), expression, at)
    assert len(found) <= 1
    return next(iter(found.values()), None)


def test_a_steady_counter_grows_by_what_it_grows_in_the_range() -> None:
    assert one(steady(2.0, first=1000.0), "increase(c_total[2m])", 300.0) == pytest.approx(240.0)
    assert one(steady(2.0, first=1000.0), "rate(c_total[2m])", 307.0) == pytest.approx(2.0)


def test_a_sample_on_the_left_end_of_a_range_is_not_in_it() -> None:
    assert one([(0, 0), (10, 10), (20, 20)], "count_over_time(c_total[20s])", 20.0) == 2
    assert one([(0, 0), (10, 10), (20, 20)], "count_over_time(c_total[20001ms])", 20.0) == 3


def test_an_end_that_is_far_from_the_samples_gets_half_a_distance() -> None:
    points = [(100.0, 50.0), (110.0, 60.0), (120.0, 70.0)]
    # 10 s apart; both ends are further than 11 s away, so 5 s are added on each side: 20 * 30 / 20.
    assert one(points, "increase(c_total[100s])", 180.0) == pytest.approx(30.0)
    # 10.9 s are near enough to be added whole on the right, 5 s on the left.
    assert one(points, "increase(c_total[100s])", 130.9) == pytest.approx(20.0 * (20 + 5 + 10.9) / 20)
    assert one(points, "increase(c_total[100s])", 131.0) == pytest.approx(30.0), "11.0 s are not"


def test_a_counter_was_never_below_zero() -> None:
    points = [(100.0, 1.0), (110.0, 11.0), (120.0, 21.0)]
    # One second before its first sample it would have been zero.
    assert one(points, "increase(c_total[60s])", 120.0) == pytest.approx(20.0 * (20 + 1) / 20)


def test_a_counter_that_begins_anew_loses_nothing_that_was_seen() -> None:
    points = [(0.0, 100.0), (10.0, 110.0), (20.0, 4.0), (30.0, 14.0)]
    assert one(points, "resets(c_total[31s])", 30.0) == 1
    # 110 - 100, then 4 from zero, then 10; the range goes one second beyond the first sample.
    assert one(points, "increase(c_total[31s])", 30.0) == pytest.approx(24.0 * 31 / 30)


def test_one_sample_is_no_increase() -> None:
    assert one([(10.0, 5.0)], "increase(c_total[60s])", 20.0) is None
    assert one([(10.0, 5.0)], "resets(c_total[60s])", 20.0) == 0


@st.composite
def samples(draw: st.DrawFn) -> list[tuple[float, float | None]]:
    """A counter with gaps, resets and ends, in whole seconds."""
    times = sorted(draw(st.sets(st.integers(0, 400), min_size=1, max_size=40)))
    values = [
        draw(st.one_of(st.integers(0, 5).map(float), st.just(draw(st.integers(0, 9)) * 1e3), st.none()))
        for _ in times
    ]
    return list(zip(map(float, times), values, strict=True))


def expected(points: Points, start: float, end: float) -> float | None:
    """The rules, sample by sample."""
    seen = [(at, value) for at, value in points if value is not None and start < at <= end]
    if len(seen) < 2:
        return None
    risen = sum(
        now if now < before else now - before for (_, before), (_, now) in zip(seen, seen[1:], strict=False)
    )
    (first_at, first), (last_at, _) = seen[0], seen[-1]
    whole = last_at - first_at
    distance = whole / (len(seen) - 1)
    left = first_at - start if first_at - start < 1.1 * distance else distance / 2
    right = end - last_at if end - last_at < 1.1 * distance else distance / 2
    if risen > 0:
        left = min(left, whole * first / risen)
    return risen * (whole + left + right) / whole


@given(points=samples(), window=st.integers(1, 300), at=st.integers(0, 700))
def test_any_counter_grows_by_the_rules(points: Points, window: int, at: int) -> None:
    wanted = expected(points, at - window, at)
    found = one(points, f"increase(c_total[{window}s])", at)
    rate = one(points, f"rate(c_total[{window}s])", at)
    if wanted is None:
        assert found is None and rate is None
    else:
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        assert rate is not None and rate == pytest.approx(wanted / window, rel=1e-12, abs=1e-12)


@given(points=samples(), window=st.integers(1, 300), at=st.integers(0, 700))
def test_functions_over_time_see_the_samples_of_the_range_and_no_others(
    points: Points, window: int, at: int
) -> None:
    seen = [value for moment, value in points if value is not None and at - window < moment <= at]
    for name, of in (("max", max), ("min", min), ("count", len), ("last", lambda values: values[-1])):
        assert one(points, f"{name}_over_time(c_total[{window}s])", at) == (of(seen) if seen else None)


@given(points=samples(), at=st.integers(0, 900))
def test_a_series_has_its_newest_sample_of_five_minutes_unless_it_ended(points: Points, at: int) -> None:
    before = [(moment, value) for moment, value in points if moment <= at]
    wanted = before[-1][1] if before and before[-1][0] > at - 300 else None
    assert one(points, "c_total", at) == wanted
    if wanted is not None:
        assert one(points, "timestamp(c_total)", at) == before[-1][0]


def test_not_a_number_is_higher_and_lower_than_nothing() -> None:
    points = [(10.0, math.nan), (20.0, 3.0), (30.0, math.nan)]
    assert one(points, "max_over_time(c_total[60s])", 40.0) == 3
    assert one(points, "min_over_time(c_total[60s])", 40.0) == 3
    assert one(points, "count_over_time(c_total[60s])", 40.0) == 3
    assert math.isnan(one(points, "last_over_time(c_total[60s])", 40.0) or 0)


def test_offset_and_at_look_at_another_moment() -> None:
    points = steady(1.0)
    assert one(points, "c_total offset 1m", 300.0) == 240
    assert one(points, "c_total offset -1m", 300.0) == 360
    assert one(points, "c_total @ 75", 300.0) == 75
    assert one(points, "c_total @ 75 offset 15s", 300.0) == 60
    assert one(points, "increase(c_total[1m] offset 2m)", 300.0) == pytest.approx(60)
    assert one(points, "c_total @ end() - c_total @ start()", 300.0) == 0
    assert one(points, "timestamp(c_total offset 1m)", 300.0) == 240
    assert one(points, "timestamp(c_total + 0)", 307.0) == 307
