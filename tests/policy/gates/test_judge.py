from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.gates import Gate, Judgement, Measurement, judge_gate, judge_gates

TTFT = Gate("ttft", "TTFT p95", "ttft_p95", "at-most", 0.45, "seconds", "timing", 600, 100, 60)
SHARE = Gate("share", "Share", "share", "at-least", 0.9, "ratio", "transfer", 600, 100, 60)
RELATIVE = replace(TTFT, threshold=1.25, slack=0.05, relative=True)


def measured(value: float = 0.362, **fields: Any) -> Measurement:
    return replace(Measurement("value", value, 14_820, 6.0, revision="d03fa885"), **fields)


def test_a_fresh_value_within_the_limit_is_green_and_says_how_much_was_seen() -> None:
    judgement = judge_gate(TTFT, measured())
    assert (judgement.verdict, judgement.reason) == ("green", "within-limit")
    assert judgement.sentence == (
        "TTFT p95 of d03fa885 is 362 ms; allowed is at most 450 ms. 14,820 samples, 6 s old."
    )


def test_a_value_beyond_the_limit_is_red_with_the_gates_action() -> None:
    judgement = judge_gate(replace(TTFT, when_red="Compare the queues."), measured(0.5))
    assert (judgement.verdict, judgement.reason, judgement.next_action) == (
        "red",
        "beyond-limit",
        "Compare the queues.",
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "no-traffic"}, "no-traffic"),
        ({"state": "no-data"}, "no-data"),
        ({"state": "not-exposed"}, "not-exposed"),
        ({"value": None}, "not-a-number"),
        ({"value": math.nan}, "not-a-number"),
        ({"value": -math.inf}, "not-a-number"),
        ({"age_s": None}, "age-unknown"),
        ({"age_s": math.nan}, "age-unknown"),
        ({"age_s": 61.0}, "stale"),
        ({"age_s": -6.0}, "clock-drift"),
        ({"samples": 99}, "too-few-samples"),
        ({"samples": 0}, "too-few-samples"),
    ],
)
def test_what_is_missing_old_or_thin_is_never_green(fields: dict[str, Any], reason: str) -> None:
    for value in (0.0, 0.362, 99.0):
        judgement = judge_gate(TTFT, replace(measured(value), **fields))
        assert (judgement.verdict, judgement.reason) == ("not-evaluable", reason)
        assert judgement.sentence.startswith("TTFT p95: ")
        assert judgement.next_action


def test_thin_samples_are_counted_out() -> None:
    assert judge_gate(TTFT, measured(samples=12)).sentence == "TTFT p95: 12 of 100 samples in 10 min."


def test_a_lower_bound_is_red_beyond_the_limit_and_else_has_no_verdict() -> None:
    assert judge_gate(TTFT, measured(0.5, at_least=True)).verdict == "red"
    low = judge_gate(TTFT, measured(0.4, at_least=True))
    assert (low.verdict, low.reason) == ("not-evaluable", "only-a-lower-bound")
    assert judge_gate(SHARE, measured(0.95, at_least=True)).verdict == "green"
    assert judge_gate(SHARE, measured(0.5, at_least=True)).verdict == "not-evaluable"


def test_relative_gates_follow_the_baseline() -> None:
    base = measured(0.38, revision="7c9e41b2")
    green = judge_gate(RELATIVE, measured(0.52, baseline=base))
    assert green.verdict == "green"
    assert green.limit == pytest.approx(0.525)
    assert "(7c9e41b2 has 380 ms)" in green.sentence
    assert judge_gate(RELATIVE, measured(0.53, baseline=base)).verdict == "red"
    share = replace(SHARE, relative=True, threshold=0.9, slack=0.02)
    assert judge_gate(share, measured(0.55, baseline=measured(0.6))).verdict == "green"
    assert judge_gate(share, measured(0.51, baseline=measured(0.6))).verdict == "red"


@pytest.mark.parametrize(
    ("baseline", "reason"),
    [
        (None, "no-baseline"),
        (Measurement("no-traffic"), "baseline-no-traffic"),
        (measured(age_s=900.0), "baseline-stale"),
        (measured(samples=5), "baseline-too-few-samples"),
        (measured(math.nan), "baseline-not-a-number"),
    ],
)
def test_without_a_good_baseline_there_is_no_verdict(baseline: Measurement | None, reason: str) -> None:
    judgement = judge_gate(RELATIVE, measured(baseline=baseline))
    assert (judgement.verdict, judgement.reason) == ("not-evaluable", reason)


def test_a_baseline_on_its_last_bucket_can_only_help() -> None:
    base = measured(40.0, at_least=True)
    assert judge_gate(RELATIVE, measured(45.0, baseline=base)).verdict == "green"
    assert judge_gate(RELATIVE, measured(60.0, baseline=base)).reason == "only-a-lower-bound"


def test_other_buckets_and_other_engines_are_not_compared() -> None:
    base = measured(0.38, buckets=(0.1, 1.0))
    assert judge_gate(RELATIVE, measured(buckets=(0.1, 1.0), baseline=base)).verdict == "green"
    assert judge_gate(RELATIVE, measured(buckets=(0.1, 0.5, 1.0), baseline=base)).reason == "meaning-changed"
    assert (
        judge_gate(RELATIVE, measured(engine="sglang", baseline=replace(base, engine="vllm"))).reason
        == "meaning-changed"
    )


def test_a_finding_is_red_whatever_the_number_is_unless_it_is_old() -> None:
    found = measured(0.1, samples=2, finding="Probes fail with prefill group p-1.")
    assert judge_gate(TTFT, found).reason == "finding"
    assert judge_gate(TTFT, found).sentence == "Probes fail with prefill group p-1."
    assert judge_gate(TTFT, replace(found, age_s=900.0)).verdict == "not-evaluable"


@pytest.mark.parametrize(
    "fields",
    [
        {"threshold": math.nan},
        {"threshold": math.inf},
        {"minimum_samples": 0},
        {"window_s": 0},
        {"maximum_sample_age_s": 0},
        {"slack": -1.0},
        {"relative": True, "threshold": 0.0},
    ],
)
def test_a_gate_that_is_green_without_a_measurement_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(TTFT, **fields)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.none()


@st.composite
def measurements(draw: st.DrawFn, deep: bool = True) -> Measurement:
    return Measurement(
        state=draw(st.sampled_from(["value", "no-traffic", "no-data", "not-exposed"])),
        value=draw(NUMBERS),
        samples=draw(st.integers(0, 200)),
        age_s=draw(NUMBERS),
        at_least=draw(st.booleans()),
        baseline=draw(st.none() | measurements(deep=False)) if deep else None,
    )


@given(measurements(), st.sampled_from([TTFT, SHARE, RELATIVE]))
def test_green_means_seen_fresh_enough_and_within_the_limit(measurement: Measurement, gate: Gate) -> None:
    judgement = judge_gate(gate, measurement)
    assert judgement.sentence and judgement.next_action
    if judgement.verdict != "green":
        return
    seen = [measurement, measurement.baseline] if gate.relative else [measurement]
    for each in seen:
        assert each is not None and each.state == "value" and each.value is not None
        assert math.isfinite(each.value) and each.samples >= gate.minimum_samples
        assert each.age_s is not None and each.age_s <= gate.maximum_sample_age_s
    assert judgement.limit is not None
    value = measurement.value or 0.0
    assert value <= judgement.limit if gate.comparison == "at-most" else value >= judgement.limit


def judged(verdict: str, **fields: Any) -> Judgement:
    gate = replace(SHARE, **fields)
    return Judgement(gate, verdict, "r", f"{gate.label} says so.", "Act.")  # type: ignore[arg-type]


def test_one_red_is_red_and_one_without_a_verdict_is_not_green() -> None:
    green, red, none = judged("green"), judged("red", id="a", label="A"), judged("not-evaluable", id="b")
    assert judge_gates([green, none, red]).verdict == "red"
    assert judge_gates([green, none, red]).red == ("a",)
    assert judge_gates([green, none]).verdict == "not-evaluable"
    assert judge_gates([green, none]).missing == ("b",)
    assert judge_gates([green]).verdict == "green"


def test_advisory_gates_inform_and_block_nothing() -> None:
    overall = judge_gates([judged("green"), judged("red", id="xid", required=False)])
    assert (overall.verdict, overall.advisory) == ("green", ("xid",))


@pytest.mark.parametrize("evidence", ["http", "timing", "capacity", "stability"])
def test_http_200_alone_is_never_green(evidence: str) -> None:
    overall = judge_gates([judged("green", evidence=evidence)])
    assert overall.verdict == "not-evaluable"
    assert "HTTP 200" in overall.sentence
    assert (
        judge_gates([judged("green", evidence=evidence), judged("green", required=False)]).verdict
        == "not-evaluable"
    )


def test_no_gates_prove_nothing() -> None:
    assert judge_gates([]).verdict == "not-evaluable"


@given(st.lists(st.tuples(st.sampled_from(["green", "red", "not-evaluable"]), st.booleans()), max_size=6))
def test_overall_green_means_every_required_gate_is(parts: list[tuple[str, bool]]) -> None:
    overall = judge_gates(
        [judged(verdict, id=str(i), required=need) for i, (verdict, need) in enumerate(parts)]
    )
    required = [verdict for verdict, need in parts if need]
    expected = (
        "red"
        if "red" in required
        else "not-evaluable"
        if "not-evaluable" in required or not required
        else "green"
    )
    assert overall.verdict == expected
