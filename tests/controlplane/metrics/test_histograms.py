"""Quantiles and means: equal to what Prometheus itself computes, and honest about what they do not know."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.metrics.client import Prometheus
from controlplane.metrics.evaluate import BELOW_FIRST_BOUND, BUCKETS_DIFFER
from controlplane.metrics.histogram import quantile, same_everywhere
from tests.controlplane.metrics.real import RealPrometheus, cumulative
from tests.controlplane.metrics.story import Story, histogram

TTFT = "vllm:time_to_first_token_seconds"
TRANSFER = "vllm:nixl_xfer_time_seconds"


def tell(
    story: Story, name: str, bounds: list[float], counts: list[float], total: float, pod: str = "p"
) -> None:
    """A young pod with these observations since its start."""
    also = story.pod(pod, "decode", "aaaa1111", since=60)
    histogram(also, name, bounds, lambda age: counts, lambda age: total)


YOUNG = {"aaaa1111": 70.0}


@pytest.mark.rig
class TestMeasured:
    def test_quantiles_mean_and_count(self, story: Story) -> None:
        tell(story, TTFT, [0.1, 0.5, 1.0], [50, 100, 50, 0], 70)
        found = {one.stat: one for one in story.measure("ttft", began=YOUNG)}
        assert {stat: one.value for stat, one in found.items()} == {
            "p50": pytest.approx(0.3),
            "p95": pytest.approx(0.9),
            "p99": pytest.approx(0.98),
            "mean": pytest.approx(0.35),
            "count": 200,
        }
        assert all(one.enough and one.count == 200 for one in found.values())
        assert found["p95"].bounds == (0.1, 0.5, 1.0)

    def test_beyond_the_last_bound_a_quantile_is_only_at_least(self, story: Story) -> None:
        """NIXL's times end at 5 s: a transfer of a minute and one of 6 s look the same."""
        tell(story, TRANSFER, [1, 5], [10, 10, 80], 4000)
        p95 = story.one("transfer_time", began=YOUNG, stats=["p95"])
        mean = story.one("transfer_time", began=YOUNG, stats=["mean"])
        assert (p95.value, p95.at_least) == (5, True)
        assert (mean.value, mean.at_least) == (40, False)

    def test_a_quantile_equal_to_the_last_bound_is_at_least_as_well(self, story: Story) -> None:
        tell(story, TRANSFER, [1, 5], [0, 19, 1], 50)
        assert story.one("transfer_time", began=YOUNG, stats=["p95"]).at_least

    def test_below_the_first_bound_a_quantile_is_a_guess_and_the_mean_is_not(self, story: Story) -> None:
        """Transfers of half a millisecond in a histogram that begins at 5 ms."""
        tell(story, TRANSFER, [0.005, 0.01], [100, 0, 0], 0.05)
        p50, mean = story.measure("transfer_time", began=YOUNG, stats=["p50", "mean"])
        assert p50.value == pytest.approx(0.0025)
        assert BELOW_FIRST_BOUND in p50.notes
        assert mean.value == pytest.approx(0.0005)

    def test_pods_with_other_buckets_have_a_mean_in_place_of_a_quantile(self, story: Story) -> None:
        tell(story, TTFT, [0.1, 1], [100, 0, 0], 5, pod="a")
        tell(story, TTFT, [0.5, 2], [0, 100, 0], 100, pod="b")
        seen = story.one("ttft", began=YOUNG, stats=["p95"])
        assert (seen.stat, seen.instead_of, seen.value) == ("mean", "p95", pytest.approx(0.525))
        assert BUCKETS_DIFFER in seen.notes
        taken = seen.as_measurement()
        assert (taken.state, taken.value) == ("no-data", None)

    def test_one_pods_longer_tail_is_other_buckets_too(self, story: Story) -> None:
        tell(story, TTFT, [0.1, 1], [100, 0, 0], 5, pod="a")
        tell(story, TTFT, [0.1, 1, 10], [0, 0, 100, 0], 500, pod="b")
        assert story.one("ttft", began=YOUNG, stats=["p95"]).instead_of == "p95"

    def test_a_bound_spelled_in_two_ways_is_one(self, story: Story) -> None:
        also = story.pod("a", "decode", "aaaa1111", since=60)
        for spelled in ("1", "1.0"):
            for le in (spelled, "+Inf"):
                also(f"{TTFT}_bucket", 50, le=le, engine=spelled)
            also(f"{TTFT}_count", 50, engine=spelled)
            also(f"{TTFT}_sum", 25, engine=spelled)
        seen = story.one("ttft", began=YOUNG, stats=["p50"])
        assert (seen.stat, seen.value, seen.count) == ("p50", 0.5, 100)

    def test_of_old_pods_only_the_window_counts(self, story: Story) -> None:
        """All of the last minutes was slow, all of the hour before fast."""
        also = story.pod("p", "decode", "aaaa1111", since=900)
        histogram(
            also,
            TTFT,
            [0.1, 1],
            lambda age: [100_000, max(0.0, 300 - age), 0],
            lambda age: 5000 + max(0.0, 300 - age),
        )
        p50, mean = story.measure("ttft", stats=["p50", "mean"])
        assert p50.value == pytest.approx(0.55)
        assert mean.value == pytest.approx(1)

    def test_a_quantile_for_a_gate(self, story: Story) -> None:
        tell(story, TTFT, [0.1, 0.5, 1.0], [50, 100, 50, 0], 70)
        revisions = [story.incarnation("aaaa1111", 70, "0.33.0")]
        taken = story.one("ttft", revisions=revisions, stats=["p95"]).as_measurement()
        assert (taken.state, taken.value, taken.samples) == ("value", pytest.approx(0.9), 200)
        assert (taken.engine, taken.version, taken.revision) == ("vllm", "0.33.0", "aaaa1111")
        assert (taken.buckets, taken.age_s) == ((0.1, 0.5, 1.0), 0)


@pytest.mark.rig
def test_our_quantile_is_the_one_that_prometheus_computes(server: RealPrometheus, client: Prometheus) -> None:
    """200 histograms by chance, with empty buckets, ends and bounds below zero, at nine quantiles."""
    chance, now = random.Random(7), client.now()
    told = {}
    for number in range(200):
        bounds = sorted(
            {round(chance.uniform(-1 if number % 5 == 0 else 0, 9), 3) for _ in range(chance.randint(1, 6))}
        )
        counts = [chance.choice([0.0, 0.0, 1.0, chance.uniform(0, 1000)]) for _ in range(len(bounds) + 1)]
        told[str(number)] = cumulative(bounds, counts)
    name = f"quantile_{int(now)}_bucket"
    server.write(
        ({"__name__": name, "n": number, "le": le}, [(now, value)])
        for number, buckets in told.items()
        for le, value in buckets.items()
    )
    for q in (0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999):
        theirs = {
            series.labels["n"]: series.value
            for series in client.instant(f"histogram_quantile({q}, {name})", now).series
        }
        for number, buckets in told.items():
            ours = quantile({float(le): count for le, count in buckets.items()}, q)
            expected = theirs[number]
            assert (ours is None) == (expected is None), (q, buckets)
            assert ours is None or ours.value == pytest.approx(expected), (q, buckets)


counted = st.lists(st.integers(0, 1000), min_size=2, max_size=8)


@given(counted, st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_its_rank(counts: list[int], q: float) -> None:
    bounds = [float(index + 1) for index in range(len(counts) - 1)]
    buckets = {float(le): value for le, value in cumulative(bounds, counts).items()}
    found = quantile(buckets, q)
    if sum(counts) == 0:
        assert found is None
        return
    assert found is not None
    below = sum(count for bound, count in zip(bounds, counts, strict=False) if bound < found.value)
    upto = buckets[min(bound for bound in buckets if bound >= found.value or bound == math.inf)]
    assert found.at_least or below - 1e-6 <= q * sum(counts) <= upto + 1e-6


@given(counted)
def test_a_quantile_never_falls_when_more_is_asked(counts: list[int]) -> None:
    bounds = [float(index + 1) for index in range(len(counts) - 1)]
    buckets = {float(le): value for le, value in cumulative(bounds, counts).items()}
    found = [one.value for q in (0.1, 0.5, 0.9, 0.99) if (one := quantile(buckets, q)) is not None]
    assert found == sorted(found)


def test_what_is_no_histogram_has_no_quantile() -> None:
    for buckets in ({}, {math.inf: 5.0}, {1.0: 5.0}, {1.0: 5.0, 2.0: 6.0}, {1.0: 0.0, math.inf: 0.0}):
        assert quantile(buckets, 0.5) is None
    assert same_everywhere({0.1: 2, 1.0: 2, math.inf: 2})
    assert not same_everywhere({0.1: 2, 0.5: 1, math.inf: 3})
