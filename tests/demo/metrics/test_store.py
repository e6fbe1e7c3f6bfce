"""What is kept: changes of values, not values; less and less of what is old or too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.metrics.metric import Metric
from deploy.demo.metrics.store import Series, Store, Timeline, TooMany, Window

Steps = list[list[float | None]]


@st.composite
def scrapes(draw: st.DrawFn) -> Steps:
    """Values of three series at each of some scrapes; None: not there."""
    value = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0]))
    return draw(st.lists(st.lists(value, min_size=3, max_size=3), min_size=1, max_size=40))


def stored(steps: Steps) -> tuple[Store, Timeline, list[Series]]:
    """A target that was scraped every second, from second 1 on."""
    store = Store()
    timeline = store.timeline("target")
    series = [store.series(Metric({"__name__": f"s{number}"}), timeline) for number in range(3)]
    for second, values in enumerate(steps, 1):
        index = timeline.add(1000 * second)
        for one, value in zip(series, values, strict=True):
            assert one is not None
            if value is None:
                one.end(index)
            else:
                one.set(index, value)
    return store, timeline, [one for one in series if one is not None]


def points(series: Series, start: int, end: int) -> list[tuple[int, float]]:
    line = series.timeline
    runs = series.runs(line.after(start - 1), line.until(end))
    return list(Window(series, runs).points()) if runs else []


@given(steps=scrapes(), start=st.integers(-5, 45), length=st.integers(0, 50))
def test_every_sample_is_given_back(steps: Steps, start: int, length: int) -> None:
    _, line, series = stored(steps)
    for number, one in enumerate(series):
        wanted = [
            (1000 * second, values[number])
            for second, values in enumerate(steps, 1)
            if values[number] is not None and start <= second <= start + length
        ]
        assert points(one, 1000 * start, 1000 * (start + length)) == wanted
        for second, values in enumerate(steps, 1):
            assert one.at(line.until(1000 * second)) == values[number]


@given(steps=scrapes(), horizon=st.integers(-5, 45))
def test_what_is_dropped_is_older_and_nothing_else_changes(steps: Steps, horizon: int) -> None:
    store, _, series = stored(steps)
    before = {one.metric.name: points(one, 1000 * horizon, 10**9) for one in series}
    store.keep_s = 100.0
    list(store.tidy(1000 * (horizon + 100)))
    for one in series:
        assert points(one, 0, 10**9) == before[one.metric.name]
        assert (one.metric.name in store.names) or before[one.metric.name] == []
    kept = [one for named in store.names.values() for one in named.values()]
    assert store.stored() == sum(one.stored for one in kept) and store.count == len(kept)


def test_a_value_that_stays_is_stored_once() -> None:
    store, _, _ = stored([[1.0, 2.0, 0.0]] * 1000)
    assert store.stored() == 3


def test_more_than_is_kept_shortens_what_is_remembered() -> None:
    store = Store(most=1000)
    line = store.timeline("target")
    series = store.series(Metric({"__name__": "busy"}), line)
    assert series is not None
    for second in range(3000):
        series.set(line.add(1000 * second), float(second))
    list(store.tidy(3_000_000))
    assert 700 <= store.stored() <= 1000
    assert points(series, 0, 3_000_000)[-1] == (2_999_000, 2999.0), "the newest stay"


def test_a_target_that_went_leaves_nothing_behind() -> None:
    store, line, series = stored([[1.0, 2.0, 3.0]] * 10)
    index = line.add(11_000)
    for one in series:
        one.end(index)
    list(store.tidy(20_000_000))
    assert (store.count, store.stored(), store.names) == (0, 0, {})


def test_series_are_counted_and_no_more_are_taken() -> None:
    store = Store(most_series=2)
    line = store.timeline("target")
    for name in ("a", "b", "a"):
        assert store.series(Metric({"__name__": name}), line) is not None
    with pytest.raises(TooMany):
        store.series(Metric({"__name__": "c"}), line)


def test_moments_of_a_target_never_go_back() -> None:
    line = Timeline()
    assert [line.time(line.add(at)) for at in (1000, 900, 2000)] == [1000, 1001, 2000]
