"""Operators between vectors, aggregations, labels and quantiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.metrics.errors import BadData, Execution
from deploy.demo.metrics.expressions import read
from tests.demo.metrics.asking import ask, told

POD_A, POD_B = {"pod": "a", "role": "prefill"}, {"pod": "b", "role": "decode"}
STORE = told(
    ("served", [(0, 6.0)], POD_A),
    ("served", [(0, 10.0)], POD_B),
    ("served", [(0, 1.0)], {"pod": "c"}),
    ("failed", [(0, 3.0)], POD_A),
    ("failed", [(0, 0.0)], POD_B),
    ("info", [(0, 1.0)], {"pod": "a", "revision": "r1"}),
    ("info", [(0, 1.0)], {"pod": "b", "revision": "r2"}),
)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("failed / served", {"a prefill": 0.5, "b decode": 0.0}),
        ("failed / on (pod) served", {"a": 0.5, "b": 0.0}),
        ("failed / ignoring (role) served", {"a": 0.5, "b": 0.0}),
        ("served * on (pod) group_left (revision) info", {"a r1 prefill": 6.0, "b r2 decode": 10.0}),
        ("info * on (pod) group_right (revision) served", {"a r1 prefill": 6.0, "b r2 decode": 10.0}),
        ("served > 5", {"served a prefill": 6.0, "served b decode": 10.0}),
        ("5 < served", {"served a prefill": 6.0, "served b decode": 10.0}),
        ("served > bool 5", {"a prefill": 1.0, "b decode": 1.0, "c": 0.0}),
        ("served > failed", {"served a prefill": 6.0, "served b decode": 10.0}),
        ("served <= bool failed", {"a prefill": 0.0, "b decode": 0.0}),
        ("10 / served", {"a prefill": 10 / 6, "b decode": 1.0, "c": 10.0}),
        ("served and failed", {"served a prefill": 6.0, "served b decode": 10.0}),
        ("served unless failed", {"served c": 1.0}),
        ("failed or served", {"failed a prefill": 3.0, "failed b decode": 0.0, "served c": 1.0}),
        ('served and on (pod) info{revision="r1"}', {"served a prefill": 6.0}),
        ("sum(served)", {"": 17.0}),
        ("sum by (role) (served)", {"prefill": 6.0, "decode": 10.0, "": 1.0}),
        ("sum without (pod) (served)", {"prefill": 6.0, "decode": 10.0, "": 1.0}),
        ("avg(served)", {"": 17 / 3}),
        ("max by (nothing) (served)", {"": 10.0}),
        ("min(served)", {"": 1.0}),
        ("count by (pod) (served)", {"a": 1.0, "b": 1.0, "c": 1.0}),
        ("group(served)", {"": 1.0}),
        ("topk(2, served)", {"served a prefill": 6.0, "served b decode": 10.0}),
        ("topk by (role) (1, served)", {"served a prefill": 6.0, "served b decode": 10.0, "served c": 1.0}),
        ("topk(0, served)", {}),
        ("1 > bool 2", 0.0),
        ("2 * 3 + 4 / 8 - 1", 5.5),
        ('label_replace(served{pod="c"}, "new", "<$1>", "pod", "(.)")', {"served <c> c": 1.0}),
        ('label_replace(served{pod="c"}, "new", "${name}$$", "pod", "(?P<name>.+)")', {"served c$ c": 1.0}),
        ('label_replace(served{pod="c"}, "pod", "", "", "")', {"served": 1.0}),
        ('label_replace(served{pod="c"}, "new", "x", "pod", "d")', {"served c": 1.0}),
        ('served{role=""}', {"served c": 1.0}),
        ('served{role!~"pre.*", pod=~"a|b"}', {"served b decode": 10.0}),
        ('{__name__=~"ser.+|fail.+", pod="a"}', {"served a prefill": 6.0, "failed a prefill": 3.0}),
    ],
)
def test_what_an_expression_gives(expression: str, wanted: object) -> None:
    found = ask(STORE, expression, 1.0)
    assert found == (pytest.approx(wanted) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("info * on () served", "found duplicate series for the match group {}"),
        ("served * on (nothing) group_left info", "many-to-many matching not allowed"),
        ('served * on (nothing) info{pod="a"}', "many-to-one matching must be explicit"),
        ('{__name__=~"served|failed"} * 2', "same labelset"),
        ('label_replace(label_replace(failed, "role", "", "", ""), "pod", "x", "", "")', "same labelset"),
        ("topk(0 / 0, served)", "NaN"),
        ('label_replace(served, "a", "b", "c", "(")', "invalid regular expression"),
        ('label_replace(served, "", "b", "c", "d")', "invalid destination label name"),
    ],
)
def test_samples_that_have_no_one_answer_are_refused(expression: str, said: str) -> None:
    with pytest.raises(Execution) as raised:
        ask(STORE, expression, 1.0)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        *("-served", "served[5m:1m]", "served % 2", "served ^ 2", "served atan2 served", "abs(served)"),
        *("stddev(served)", 'count_values("x", served)', "quantile(0.5, served)", "deriv(served[5m])"),
        *(
            "delta(served[5m])",
            "irate(served[5m])",
            "avg_over_time(served[5m])",
            "vector(1)",
            "absent(served)",
        ),
        *(
            'served{pod="a" or pod="b"}',
            'label_join(served, "x", "-", "pod")',
            "scalar(served)",
            "bottomk(1, served)",
        ),
        *(
            "served{",
            "",
            "sum(",
            "served{pod=a}",
            "{}",
            '{pod=""}',
            "increase(served)",
            "sum(1)",
            "served[5m] + 1",
        ),
        *(
            "1 > 2",
            "1 and served",
            "served + on (pod) 1",
            "time(1)",
        ),
        *(
            'served{pod=~"(?i)A"}',
            'served{pod=~"a(?=b)"}',
            'served{pod=~"[[:alpha:]]"}',
            'served{pod=~"\\\\pL"}',
        ),
        *("(" * 101 + "served" + ")" * 101, "served or " * 3000 + "served", "(" * 50_000, "-" * 50_000 + "1"),
    ],
)
def test_what_is_not_evaluated_here_is_refused_whatever_there_is(expression: str) -> None:
    with pytest.raises(BadData):
        read(expression)


def test_one_question_compares_series_of_one_moment_only() -> None:
    store = told(("one", [(0, 1.0), (10, 5.0)]), ("two", [(0, 1.0), (400, 2.0)]))
    assert ask(store, "one == two", 5.0) == {"one": 1.0}
    assert ask(store, "one == two", 10.0) == {}
    assert ask(store, "one + two", 400.0) == {}, "the first is too old by then"


@given(values=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=20))
def test_aggregations_of_any_values(values: list[float]) -> None:
    store = told(*(("v", [(0, value)], {"n": str(number)}) for number, value in enumerate(values)))
    numbers = [value for value in values if not math.isnan(value)]

    def found(expression: str) -> float:
        return float(next(iter(ask(store, expression, 1.0).values())))

    for name, of in (("max", max), ("min", min)):
        wanted = of(numbers, default=math.nan)
        assert found(f"{name}(v)") == wanted or math.isnan(wanted) and math.isnan(found(f"{name}(v)"))
    assert found("count(v)") == len(values)
    sums = (found("sum(v)"), sum(values))
    assert sums[0] == pytest.approx(
        sums[1], rel=1e-6, abs=1e-6 * max(map(abs, numbers), default=0), nan_ok=True
    )
    ranked = list(ask(store, "topk(3, v)", 1.0).values())
    best = sorted(numbers, reverse=True)[:3]
    assert [one for one in ranked if not math.isnan(one)] == best and len(ranked) == min(3, len(values))


# --- quantiles


def quantile(share: float, buckets: dict[str, float]) -> float:
    store = told(*(("h_bucket", [(0, count)], {"le": le}) for le, count in buckets.items()))
    return float(next(iter(ask(store, f"histogram_quantile({share}, h_bucket)", 1.0).values())))


def test_a_quantile_is_linear_inside_its_bucket() -> None:
    assert quantile(0.5, {"1": 10.0, "2": 20.0, "+Inf": 20.0}) == 1.0
    assert quantile(0.75, {"1": 10.0, "2": 20.0, "+Inf": 20.0}) == 1.5
    assert quantile(0.25, {"1": 10.0, "2": 20.0, "+Inf": 20.0}) == 0.5, "the first begins at zero"
    assert quantile(0.99, {"1": 10.0, "2": 20.0, "+Inf": 40.0}) == 2.0, (
        "beyond the last bound nothing is known"
    )
    assert quantile(0.1, {"-1": 10.0, "2": 20.0, "+Inf": 20.0}) == -1.0


def test_a_quantile_of_nothing_is_no_number() -> None:
    assert math.isnan(quantile(0.5, {"1": 0.0, "+Inf": 0.0}))
    assert math.isnan(quantile(0.5, {"1": 3.0, "2": 3.0})), "no count of all"
    assert math.isnan(quantile(0.5, {"+Inf": 3.0})), "no bound"


def test_counts_that_fall_are_raised() -> None:
    assert quantile(0.5, {"1": 10.0, "2": 9.0, "+Inf": 20.0}) == quantile(
        0.5, {"1": 10.0, "2": 10.0, "+Inf": 20.0}
    )


def test_shares_beyond_0_and_1_are_infinite() -> None:
    assert quantile(1.5, {"1": 1.0, "+Inf": 1.0}) == math.inf
    assert quantile(0 - 0.5, {"1": 1.0, "+Inf": 1.0}) == -math.inf


@given(
    parts=st.lists(st.integers(0, 50), min_size=2, max_size=8),
    share=st.floats(0.001, 0.999),
)
def test_a_quantile_lies_in_the_bucket_that_has_its_rank(parts: list[int], share: float) -> None:
    below, buckets = 0, {}
    for number, part in enumerate(parts):
        below += part
        buckets["+Inf" if number == len(parts) - 1 else str(number + 1)] = float(below)
    found = quantile(share, buckets)
    if below == 0:
        assert math.isnan(found)
        return
    place = next(number for number, count in enumerate(buckets.values()) if count >= share * below)
    if place == len(parts) - 1:
        assert found == len(parts) - 1
    else:
        assert place <= found <= place + 1
